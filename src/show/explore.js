'use strict';
const $ = id => document.getElementById(id);
const HEIGHT = 20; // of a token
const SMALL = 38, STRIP = 7; // pixels of a small map, and of the strip below it
const LABELS = 56, ROOM = 6; // pixels beside the large map with labels, and without
const CELLS = 44; // pixels of a strip in a table
const MOST = 3; // heads at once, and colours
const PIECE = 4 << 20; // digits of the checkpoint, on its way to the module
// What is shown, as explore_put_view of explore.c writes it; its tokens, and how many they are; the
// buttons of its heads, and how many are in a row; the weights of each.
let view, texts, n, heads, columns, maps;
// What is looked at: a token that looks or, on the other side, is looked at, -1 for all of them; of
// a cell or a line also its key. What is kept stays when the pointer moves on.
const at = {side: 'queries', token: -1, key: -1, kept: false, small: false, first: false};
const items = {};
// The heads that are shown, each with its colour; the large map and the path are of the last.
let picked = [{head: 0, colour: 0}];

// The weight that query i gives to key j, and how dark it is shown.
const weight = (head, i, j) => maps[head][i * (i + 1) / 2 + j];
function shade(w, j) {
  return at.first && j == 0 ? 0 : at.small ? Math.sqrt(w) : w;
}
// Every weight is said like this, wherever it is.
const amount = w => w.toFixed(3);
const signed = x => (x < 0 ? '−' : '+') + Math.abs(x).toFixed(3);
const named = t => `'${texts[t]}' (${t})`;
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const ink = (colour, strength) => `rgba(var(--c${colour}),${strength})`;
const last = () => picked[picked.length - 1];

function element(name, text, colour) {
  const e = document.createElement(name);
  e.textContent = text;
  if (colour === undefined) return e;
  e.style.setProperty('--own', ink(colour, 1));
  e.prepend(document.createElement('i'));
  return e;
}

// --- what is shown ---

function showHeads() {
  let group, before;
  heads = [];
  $('heads').replaceChildren(...view.rows.map(row => {
    const line = element('div', '');
    line.className = 'row';
    line.append(element('span', row.name));
    row.heads.forEach((h, k) => {
      if (k == 0 || h.group < 0 || h.group != before) {
        line.append(group = element('div', ''));
        group.className = h.group < 0 ? 'group' : 'group shared';
      }
      before = h.group;
      const b = element('button', '');
      b.dataset.name = h.name;
      b.setAttribute('aria-label', 'head ' + h.name);
      b.append(document.createElement('canvas'), document.createElement('canvas'), h.name,
               element('span', ''));
      b.note = h.note;
      b.of = heads.push(b) - 1;
      group.append(b);
    });
    return line;
  }));
  columns = view.rows[0].heads.length;
}

// Takes another view with its numbers, which are in the order of struct explore_layer.
function load(json, buffer) {
  const numbers = new Float32Array(buffer, 0, Math.floor(buffer.byteLength / 4));
  let from = 0;
  const take = count => numbers.subarray(from, from += count);
  view = json;
  texts = view.tokens;
  n = texts.length;
  $('subtitle').textContent = view.subtitle;
  showHeads();
  maps = heads.map(() => take(n * (n + 1) / 2));
  const p = view.paths;
  for (const l of p ? p.layers : []) {
    l.x = take(n * p.d);
    l.q = take(n * l.heads * p.key);
    l.k = take(n * l.shared * p.key);
    l.v = take(n * l.shared * p.value);
    l.w = take(l.additive ? l.heads * p.key : 0);
    l.written = take(n * l.heads * (1 + 2 * p.largest)); // a length; largest numbers behind places
    l.added = take(l.direct ? n * l.heads * view.n_next : 0);
  }
  for (const side of ['queries', 'keys']) {
    items[side] = texts.map((text, t) => {
      const e = element('li', text);
      e.setAttribute('role', 'option');
      e.setAttribute('aria-label', `token ${t}, ${text}`);
      e.cell = {side, token: t};
      return e;
    });
    $(side).replaceChildren(...items[side]);
  }
  $('lines').setAttribute('height', n * HEIGHT);
}

// --- maps ---

// Draws a head into a square: where tokens are more than cells, a cell is its darkest weight.
function draw(pen, head, colour, left, top, size) {
  const side = Math.max(1, Math.min(n, Math.floor(size))), cells = new ImageData(side, side), {data} = cells;
  const rgb = style('--c' + colour).split(',').map(Number), weights = maps[head];
  const place = Int32Array.from(texts, (_, t) => Math.floor(t * side / n));
  for (let i = 0, k = 0; i < n; i++)
    for (let j = 0; j <= i; j++, k++) {
      const at = 4 * (place[i] * side + place[j]), s = Math.round(255 * shade(weights[k], j));
      if (s <= data[at + 3]) continue;
      data.set(rgb, at);
      data[at + 3] = s;
    }
  const picture = new OffscreenCanvas(side, side);
  picture.getContext('2d').putImageData(cells, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, left, top, size, size);
}

const mapSize = () => $('map').clientWidth - LABELS - ROOM;

// What draws on a canvas of so many pixels of the page.
function penOf(canvas, width, height) {
  const pen = canvas.getContext('2d'), dots = devicePixelRatio || 1;
  canvas.width = width * dots;
  canvas.height = height * dots;
  pen.scale(dots, dots);
  return pen;
}

function drawLarge() {
  const {head, colour} = last(), t = at.token, map = $('map');
  const pen = penOf(map, map.clientWidth, map.clientWidth), size = mapSize(), token = size / n;
  pen.fillStyle = style('--ground');
  pen.fillRect(LABELS, ROOM, size, size);
  draw(pen, head, colour, LABELS, ROOM, size);

  // Labels of as many tokens as there is room for, and of the one that is picked.
  const step = Math.ceil(11 / token);
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (let i = 0; i < n; i++) {
    if (i != t && (i % step || (t >= 0 && Math.abs(i - t) < step))) continue;
    const text = texts[i].length > 8 ? texts[i].slice(0, 7) + '…' : texts[i];
    const place = (i + .5) * token;
    for (const side of ['queries', 'keys']) {
      const on = i == t && side == at.side;
      pen.font = (on ? '700 ' : '') + '10px system-ui,sans-serif';
      pen.fillStyle = style(on ? '--text' : '--muted');
      pen.save();
      pen.translate(side == 'queries' ? LABELS - 4 : LABELS + place,
                    side == 'queries' ? ROOM + place : ROOM + size + 4);
      if (side == 'keys') pen.rotate(-Math.PI / 2);
      pen.fillText(text, 0, 0);
      pen.restore();
    }
  }
  if (t < 0) return;
  const thick = Math.max(token, 3), from = place => (place + .5) * token - thick / 2;
  pen.strokeStyle = style('--text');
  if (at.side == 'queries') pen.strokeRect(LABELS, ROOM + from(t), (t + 1) * token, thick);
  else pen.strokeRect(LABELS + from(t), ROOM + t * token, thick, size - t * token);
  if (at.key >= 0) pen.strokeRect(LABELS + from(at.key), ROOM + from(t), thick, thick);
}

// --- the text ---

function line(i, j, w, colour, aside) {
  const y = i * HEIGHT + HEIGHT / 2 + aside, z = j * HEIGHT + HEIGHT / 2 + aside;
  const width = $('lines').clientWidth, bend = .4 * width;
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', `M0 ${y}C${bend} ${y} ${width - bend} ${z} ${width} ${z}`);
  path.setAttribute('opacity', (.1 + .9 * w).toFixed(3));
  path.style.stroke = ink(colour, 1);
  path.cell = {side: 'queries', token: i, key: j};
  $('lines').append(path);
}

// Lines and shades of the k-th head that is picked; returns what is said of it.
function showHead({head, colour}, k) {
  const t = at.token, all = t < 0, looks = at.side == 'queries', best = [];
  const from = k / picked.length, to = (k + 1) / picked.length;
  // All weights; or of the token picked those with which it looks, or is looked at.
  for (let i = all ? 0 : t; i < (looks && !all ? t + 1 : n); i++)
    for (let j = looks ? 0 : t; j <= (looks ? i : t); j++) {
      const w = weight(head, i, j), s = shade(w, j), partner = looks ? j : i;
      if (s >= .01 && (w >= .1 || !all)) line(i, j, s, colour, 3 * (k - (picked.length - 1) / 2));
      if (all) continue;
      // Of several heads each has its stripe.
      const e = items[looks ? 'keys' : 'queries'][partner];
      const more = ink(colour, `calc(var(--most)*${s.toFixed(3)})`);
      e.stripes = `${k ? e.stripes + ',' : ''}${more} ${100 * from}% ${100 * to}%`;
      e.style.background = `linear-gradient(90deg,${e.stripes})`;
      if (w > 0) best.push([w, partner]);
    }
  if (at.key >= 0) return `${amount(weight(head, t, at.key))} of the weight is on ${named(at.key)}`;
  best.sort((a, b) => b[0] - a[0]);
  const most = best.slice(0, picked.length > 1 ? 3 : 6);
  return most.map(([w, p]) => `${named(p)} ${amount(w)}`).join(', ') || 'nothing';
}

// The tokens that may come after token t.
const nextOf = t => view.next.slice(view.n_next * t, view.n_next * (t + 1));

function showAnswers() {
  const t = at.token, all = t < 0, looks = at.side == 'queries', said = [];
  picked.forEach((p, k) => {
    const name = heads[p.head].dataset.name, what = showHead(p, k);
    if (!all) said.push(element('p', picked.length > 1 ? `${name}: ${what}` : what, p.colour));
  });
  const what = all ? 'All tokens: lines are weights of 0.1 and more.' :
    `${named(t)} ${looks ? 'looks at' : 'is looked at by'}`;
  if (!all && view.n_next)
    said.push(element('p', `After ${named(t)} comes: ` + nextOf(t).map(([text, p]) =>
      `'${text}' ${(100 * p).toFixed(p < .1 ? 1 : 0)}%`).join(', ')));
  $('said').replaceChildren(element(all ? 'p' : 'h2', what), ...said);
  $('cards').replaceChildren(...picked.map(p => {
    const card = document.createElement('div'), b = heads[p.head];
    card.append(element('h2', 'Head ' + b.dataset.name, p.colour), element('p', b.note));
    card.lastChild.className = 'muted';
    return card;
  }));
}

// Under each head, for the token at hand: its weights as a strip, and the largest of them, with whose
// it is.
function showStrips() {
  const t = at.token, looks = at.side == 'queries', side = Math.min(n, SMALL);
  const colour = style('--c0');
  for (const b of heads) {
    const pen = penOf(b.children[1], SMALL, STRIP), cells = new Float32Array(side), label = b.lastChild;
    let most = -1, of = 0;
    for (let p = looks ? 0 : t; t >= 0 && p < (looks ? t + 1 : n); p++) {
      const w = looks ? weight(b.of, t, p) : weight(b.of, p, t), c = Math.floor(p * side / n);
      const counts = !at.first || (looks ? p : t) > 0;
      cells[c] = Math.max(cells[c], shade(w, looks ? p : t));
      if (counts && w > most) [most, of] = [w, p];
    }
    pen.fillStyle = `rgb(${colour})`;
    cells.forEach((s, c) => {
      pen.globalAlpha = s;
      pen.fillRect(c * SMALL / side, 0, SMALL / side, STRIP);
    });
    label.replaceChildren(...most < 0 ? [] : [element('span', texts[of]), ' ' + amount(most).slice(1)]);
    b.title = b.note + (most < 0 ? '' :
      `; most of the weight ${looks ? 'is on' : 'comes from'} ${named(of)}: ${amount(most)}`);
  }
}

// --- the path of a token ---

const layerOf = head => {
  const [l, h] = heads[head].dataset.name.split('.').map(Number);
  return [view.paths.layers.find(x => x.layer == l), h];
};
const row = (all, t, of, h, size) => all.subarray((t * of + h) * size, (t * of + h + 1) * size);

// What one head makes of query i: its scores, weights, and the sum of the values. (The formulas are
// those of attend --trace.)
function pathOf(head, i) {
  const {d, key, value, scale, largest} = view.paths, [layer, h] = layerOf(head);
  const shared = Math.floor(h / (layer.heads / layer.shared));
  const q = row(layer.q, i, layer.heads, h, key), w = row(layer.w, 0, layer.heads, h, key);
  const [centre, linear, square] = layer.bias ? layer.bias.slice(3 * h) : [0, 0, 0];
  const result = new Float32Array(value), rows = texts.map((_, j) => {
    const k = row(layer.k, j, layer.shared, shared, key), v = row(layer.v, j, layer.shared, shared, value);
    const products = q.map((x, c) => layer.additive ? w[c] * Math.tanh(x + k[c]) : x * k[c]);
    let product = 0;
    for (let c = 0; c < key; c++) product += layer.additive ? w[c] * Math.tanh(q[c] + k[c]) : q[c] * k[c];
    const x = i - j - centre, score = product * (layer.additive ? 1 : scale) + linear * x + square * x * x;
    return {k, v, products, product, score, weight: hides(layer, i, j) ? 0 : weight(head, i, j)};
  });
  for (const r of rows) r.v.forEach((x, c) => { result[c] += r.weight * x; });
  return {layer, x: layer.x.subarray(i * d, (i + 1) * d), q, rows, result, additive: layer.additive,
          written: row(layer.written, i, layer.heads, h, 1 + 2 * largest)};
}

// Whether the mask keeps token i of a layer from looking at token j.
const hides = (layer, i, j) => j > i || (layer.window > 0 && j <= i - layer.window);

// What a head adds to the logits of the tokens that may come after token t, by the direct path.
const addedBy = (head, t) => {
  const [layer, h] = layerOf(head);
  return layer.direct ? [...row(layer.added, t, layer.heads, h, view.n_next)] : [];
};
// The heads by what they add to the first of these, the most first.
const byAdded = t => heads.map(b => [addedBy(b.of, t)[0], b]).sort((a, b) => b[0] - a[0]);

// Numbers as a strip of cells, the positive ones in one colour, the negative ones in another.
function strip(name, numbers, width) {
  const canvas = document.createElement('canvas'), pen = penOf(canvas, width, 12);
  const cell = width / numbers.length, most = Math.max(1e-30, ...numbers.map(Math.abs));
  canvas.style.width = width + 'px';
  const signs = [style('--plus'), style('--minus')];
  numbers.forEach((x, c) => {
    pen.fillStyle = `rgba(${signs[+(x < 0)]},${Math.abs(x) / most})`;
    pen.fillRect(c * cell, 0, Math.max(cell, 1), 12);
  });
  canvas.onpointermove = canvas.onclick = event => {
    const c = Math.min(Math.max(Math.floor(event.offsetX / cell), 0), numbers.length - 1);
    $('number').textContent = `${name}[${c}] = ${numbers[c].toFixed(4)}`;
  };
  return canvas;
}

function step(name, ...parts) {
  const e = document.createElement('div');
  e.className = 'step';
  e.append(element('b', name), ...parts);
  return e;
}

const largest = numbers => element('span', 'largest ' + [...numbers.keys()]
  .sort((a, b) => Math.abs(numbers[b]) - Math.abs(numbers[a])).slice(0, 3)
  .map(c => `[${c}] ${numbers[c].toFixed(3)}`).join(', '));

function tableOf(path) {
  const table = document.createElement('table'), i = at.token;
  const rows = path.rows.map((r, j) => {
    const tr = document.createElement('tr'), masked = hides(path.layer, i, j);
    const cells = [texts[j], strip(`k of ${named(j)}`, r.k, CELLS),
      strip(`q k of ${named(j)}`, r.products, CELLS), r.product.toFixed(3), r.score.toFixed(3),
      masked ? '−∞' : '', amount(r.weight), strip(`v of ${named(j)}`, r.v, CELLS)];
    tr.className = masked ? 'masked' : r.weight >= .1 ? 'large' : '';
    if (j == at.key) tr.classList.add('chosen');
    tr.append(...cells.map(c => {
      const td = document.createElement('td');
      td.append(c);
      return td;
    }));
    if (!masked) tr.cells[6].style.background =
      `linear-gradient(90deg,${ink(last().colour, `calc(var(--most)*.8)`)} ${100 * r.weight}%,transparent 0)`;
    return tr;
  });
  const head = document.createElement('tr');
  head.append(...['token', 'k', path.additive ? 'w tanh(q+k)' : 'q k',
                  path.additive ? 'w·tanh(q+k)' : 'q·k', view.paths.scaled, 'mask', 'weight', 'v']
    .map(h => element('th', h)));
  table.append(head, ...rows);
  return table;
}

// What the head adds to the tokens that may come next, and which heads add most to the first of them.
function addedTo(t) {
  const added = addedBy(last().head, t), next = nextOf(t);
  if (!added.length)
    return [element('p', 'Norms follow the residuals: no head has a path of its own to the logits.')];
  const most = byAdded(t).slice(0, 4).map(([x, b]) => `${b.dataset.name} ${signed(x)}`).join(', ');
  const how = element('p', 'The direct path: this head’s A·Wo as the last norm scales the stream here, ' +
    'times rows of the output matrix. What later layers make of it is not in it.');
  how.className = 'muted';
  return [step('added to the logits', next.map(([text], k) => `'${text}' ${signed(added[k])}`).join(', ')),
          step(`most to '${next[0][0]}' by`, most), how];
}

function showPath() {
  const {dataset: {name}} = heads[last().head], t = at.token;
  if (!at.kept || t < 0 || at.side == 'keys') return $('path').replaceChildren();
  if (!view.paths)
    return $('path').replaceChildren(element('p', `${view.why} --trace ${name} --query ${t}`));
  const p = view.paths, path = pathOf(last().head, t), w = path.written;
  const places = Array.from({length: p.largest}, (_, k) => 1 + 2 * k);
  const wide = Math.max(120, Math.min(320, $('answers').clientWidth - 150));
  const number = element('div', ''), signs = element('p', '');
  number.id = 'number';
  number.textContent = 'Point at a strip for its numbers.';
  signs.className = 'signs muted';
  signs.append('Strips: ', element('i', ''), 'positive', element('i', ''),
               'negative; the largest number of a strip is darkest.');
  $('path').replaceChildren(
    element('h2', `The path of ${named(t)} through head ${name}`, last().colour), number, signs,
    step(p.x, strip('x', path.x, wide), largest(path.x)),
    step('q = x·Wq' + p.rotated, strip('q', path.q, wide), largest(path.q)),
    tableOf(path),
    step('sum of weight·v', strip('sum', path.result, wide), largest(path.result)),
    step('times Wo, into the stream', element('span', `length ${w[0].toFixed(3)}, largest ` +
      places.filter(k => w[k] >= 0).map(k => `[${w[k]}] ${w[k + 1].toFixed(3)}`).join(', '))),
    ...view.n_next ? addedTo(t) : []);
}

// --- the page ---

function show() {
  const t = at.token, all = t < 0;
  heads.forEach((b, h) => {
    const p = picked.find(p => p.head == h);
    b.setAttribute('aria-pressed', !!p);
    b.style.setProperty('--own', p ? ink(p.colour, 1) : '');
    b.tabIndex = h == last().head ? 0 : -1;
  });
  for (const side in items)
    items[side].forEach((e, i) => {
      const on = side == at.side && i == t;
      e.setAttribute('aria-selected', on);
      e.classList.toggle('partner', side == 'keys' && i == at.key);
      e.tabIndex = on || (all && i == 0) ? 0 : -1;
      e.style.background = '';
    });
  $('lines').replaceChildren();
  showAnswers();
  showPath();
  $('legend').replaceChildren('Weight', ...[0, .25, .5, .75, 1].map(s => {
    const e = element('span', (at.small ? s * s : s).toFixed(2), last().colour);
    e.firstChild.style.background = ink(last().colour, s);
    return e;
  }), at.small ? ' (shaded by its root)' : '');
  document.body.classList.toggle('empty', all);
  showStrips();
  drawLarge();
  const of = picked.map(p => heads[p.head].dataset.name).join();
  const key = at.key >= 0 ? ':' + at.key : '', side = at.side == 'keys' ? 'k' : '';
  const token = all ? '' : `@${t}${key}${side}${at.kept ? '!' : ''}`;
  const flags = `${at.small ? '&small' : ''}${at.first ? '&first' : ''}${questions ? asAddress() : ''}`;
  history.replaceState(null, '', `#${of}${token}${flags}`);
}

// Shows a head alone; with `also` beside the others, or the others without it.
function pick(head, also) {
  const others = also ? picked.filter(p => p.head != head) : [];
  if (others.length && others.length < picked.length) {
    picked = others;
  } else {
    if (others.length == MOST) others.shift();
    const colour = [0, 1, 2].find(c => others.every(p => p.colour != c));
    picked = [...others, {head, colour}];
  }
  show();
}

const ALL = {side: 'queries', token: -1, key: -1, kept: false};
function go(change) {
  const to = {key: -1, ...change};
  if (Object.keys(to).every(k => to[k] === at[k])) return;
  Object.assign(at, to);
  show();
}
// A click keeps what it meets; what is kept already, it lets go.
function keep(cell) {
  const {side, token, key} = {key: -1, ...cell};
  const same = at.kept && at.side == side && at.token == token && at.key == key;
  go({side, token, key, kept: !same});
}
function redraw() {
  at.small = $('small').checked;
  at.first = $('first').checked;
  heads.forEach((b, h) => draw(penOf(b.firstElementChild, SMALL, SMALL), h, 0, 0, 0, SMALL));
  show();
}
// Scrolls the text so that a token is within it.
function reveal(t, middle) {
  const text = $('lists'), room = text.clientHeight - 2 * HEIGHT, top = t * HEIGHT;
  if (middle) text.scrollTop = top - room / 2;
  else text.scrollTop = Math.max(top - room, Math.min(top - HEIGHT, text.scrollTop));
}

// --- keys and pointer ---

// Where an arrow key leads among `count` things, `across` a line; -1: it is no arrow.
function target(key, from, count, across) {
  const step = {ArrowUp: -across, ArrowDown: across, ArrowLeft: -1, ArrowRight: 1}[key];
  const to = key == 'Home' ? 0 : key == 'End' ? count - 1 : from + step;
  return to >= 0 && to < count ? to : -1;
}

for (const side of ['queries', 'keys']) {
  $(side).onkeydown = event => {
    const aside = {ArrowLeft: 'queries', ArrowRight: 'keys'}[event.key];
    const to = aside ? at.token : target(event.key, at.token, n, 1);
    if (event.key == 'Enter') return keep(event.target.cell);
    if (to < 0 || at.token < 0) return;
    event.preventDefault();
    items[aside || side][to].focus({preventScroll: true});
    go({side: aside || side, token: to});
    reveal(to);
    items[aside || side][to].scrollIntoView({block: 'nearest'});
  };
  $(side).addEventListener('focusin', event => {
    if (event.target.matches(':focus-visible')) go(event.target.cell);
  });
}

// The token, or the cell of the large map, that an event of the pointer meets.
function cellAt(event) {
  if (event.target.cell) return event.target.cell;
  if (event.target != $('map')) return null;
  const place = x => Math.floor(x / mapSize() * n);
  const token = place(event.offsetY - ROOM), key = place(event.offsetX - LABELS);
  if (token < 0 || token >= n || key < 0) return null;
  return key <= token ? {side: 'queries', token, key} : {side: 'queries', token};
}

// Browsers send events of the pointer also when the page scrolls below one that rests. It must not
// take back what keys have picked: it counts when it has another place in the window than before. A
// finger has no place before it touches, and what it touches is a click.
let place;
document.addEventListener('pointermove', event => {
  const before = place;
  if (event.pointerType == 'touch') return;
  place = event.clientX + ',' + event.clientY;
  if (before === undefined || before == place || at.kept) return;
  const cell = cellAt(event);
  if (!cell) return;
  go(cell);
  if (event.target == $('map')) reveal(cell.token);
});
document.addEventListener('click', event => {
  const cell = cellAt(event);
  if (cell) keep(cell);
});

$('heads').onkeydown = event => {
  const focus = heads.indexOf(document.activeElement);
  const from = focus < 0 ? last().head : focus;
  const to = target(event.key, from, heads.length, columns);
  if (to < 0) return;
  event.preventDefault();
  heads[to].focus();
  if (!event.shiftKey) pick(to);
};
// Of clicks that are a key's (Space, Enter) detail is 0.
const adds = () => $('add').getAttribute('aria-pressed') == 'true';
$('heads').onclick = event => {
  const b = event.target.closest('button');
  if (b) pick(b.of, event.shiftKey || event.detail == 0 || adds());
};
$('add').onclick = () => $('add').setAttribute('aria-pressed', !adds());
$('all').onclick = () => go(ALL);
document.addEventListener('keydown', event => {
  if (event.key == 'Escape') go(ALL);
});

// FILE.html#1.3,0.5@12! begins with heads 1.3 and 0.5 and the query at position 12, kept; "@12:4" is
// a cell of the map, "@12k" a token that is looked at. Without any of it the last token is kept, and
// the head shown that adds most to what comes next.
function begin() {
  let hash = location.hash, [first, ...more] = [''];
  try {
    [first, ...more] = hash.slice(1).split('&').map(decodeURIComponent);
  } catch { } // an address that nobody wrote
  if (view.live && followAddress(hash, more)) return;
  const [, names, token, key, side, kept] = first.match(/^([\d.,]*)(?:@(\d+)(?::(\d+))?(k)?(!)?)?/);
  const wanted = names.split(',').map(name => heads.findIndex(b => b.dataset.name == name));
  picked = [...new Set(wanted)].filter(h => h >= 0).slice(0, MOST)
    .map((head, colour) => ({head, colour}));
  Object.assign(at, ALL);
  if (token !== undefined && +token < n) {
    at.token = +token;
    at.side = side ? 'keys' : 'queries';
    at.key = key !== undefined && +key <= at.token && !side ? +key : -1;
    at.kept = !!kept;
  } else if (!picked.length) {
    at.token = n - 1;
    at.kept = true;
  }
  const best = view.paths && view.n_next && at.token >= 0 ? byAdded(at.token)[0][1].of : 0;
  if (!picked.length) picked = [{head: best, colour: 0}];
  $('small').checked = more.includes('small');
  $('first').checked = more.includes('first');
  redraw();
  if (at.token >= 0) reveal(at.token, true);
  const all = $('heads').getBoundingClientRect(), one = heads[last().head].getBoundingClientRect();
  if (one.bottom > all.bottom || one.top < all.top) $('heads').scrollTop += one.top - all.top;
  if (one.right > all.right || one.left < all.left) $('heads').scrollLeft += one.left - all.left;
}

// --- another text ---

// What a page that is live was asked for: a text, so many tokens that the model makes behind it, and
// how; how often; and whether the module is there.
const asked = {typed: '', made: 0, temperature: 0.8, seed: 1, kv: ''};
let worker, ready = false, questions = 0, field, address;
const say = text => { $('state').textContent = text; };
const asAddress = () => Object.entries(asked).map(([k, v]) => `&${k}=${encodeURIComponent(v)}`).join('');

// What runs is asked once the module is there; the answer to the last question is drawn.
function ask(change) {
  Object.assign(asked, change);
  field = $('typed').value;
  questions++;
  say(ready ? '…' : 'The checkpoint is being read …');
  if (ready) worker.postMessage({step: 'show', id: questions, ...asked});
}
// The model goes on behind the text that is shown, or behind another one that was typed.
function more(count) {
  const other = $('typed').value != view.live.text;
  ask(other ? {typed: $('typed').value, made: count} : {made: view.live.made + count});
}
function showControls() {
  if ($('typed').value == field) $('typed').value = field = view.live.text;
  $('temperature').value = asked.temperature;
  $('seed').value = asked.seed;
  const kv = [...new Set([view.live.kv, ...view.live.variants.slice(1).map(String)])];
  if (!kv.includes('')) kv.unshift('');
  $('kv').replaceChildren(...kv.map(g => {
    const option = element('option', g || view.live.variants[0]);
    option.value = g;
    return option;
  }));
  $('kv').value = asked.kv;
}
// Whether an address has another text than the one that is shown: that is asked for first.
function followAddress(hash, more) {
  const wanted = Object.fromEntries(more.filter(p => p.includes('=')).map(p => {
    const at = p.indexOf('=');
    return [p.slice(0, at), p.slice(at + 1)];
  }));
  if (wanted.typed === undefined) return false;
  const number = (name, usual) => Number.isFinite(+wanted[name]) ? Math.max(0, +wanted[name]) : usual;
  const next = {typed: wanted.typed, made: Math.floor(number('made', 0)),
                temperature: number('temperature', .8), seed: Math.floor(number('seed', 1)),
                kv: wanted.kv || ''};
  if (Object.keys(next).every(k => next[k] === asked[k])) return false;
  address = hash;
  if (!questions) redraw();
  ask(next);
  return true;
}
function take({id, step, error, view: other, numbers}) {
  if (error && step != 'show') return say(error);
  if (step == 'open') {
    ready = true;
    say('');
    worker.postMessage({step: 'show', id: questions, ...asked}); // the model is made beforehand
  }
  if (step != 'show' || id != questions || !questions) return;
  if (error) return say(error);
  const before = n;
  load(other, numbers);
  showControls();
  const full = n >= view.live.context;
  say(view.live.made == asked.made ? '' : full ? 'The context is full.' : 'The model has ended the text.');
  if (address) {
    history.replaceState(null, '', address);
    address = null;
    return begin();
  }
  if (n != before) Object.assign(at, ALL, {token: n - 1, kept: true});
  redraw();
  reveal(at.token);
}
async function live() {
  $('ask').hidden = false;
  Object.assign(asked, {typed: view.live.text, kv: view.live.kv});
  field = $('typed').value;
  showControls();
  if (typeof WebAssembly != 'object' || typeof DecompressionStream != 'function')
    return say('This browser has no WebAssembly with DecompressionStream: the text stays as it is.');
  const pieces = $('checkpoint'), base64 = pieces.textContent, bytes = +pieces.dataset.bytes;
  worker = new Worker(URL.createObjectURL(new Blob([$('worker').textContent])));
  worker.onerror = () => say('The module does not run in this browser: the text stays as it is.');
  worker.onmessage = event => take(event.data);
  worker.postMessage({step: 'module', base64: $('module').textContent, bytes});
  for (let at = 0; at < base64.length; at += PIECE) {
    worker.postMessage({step: 'part', base64: base64.slice(at, at + PIECE), bytes});
    await new Promise(done => setTimeout(done));
  }
  worker.postMessage({step: 'open', name: view.live.name});
}
$('run').onclick = () => ask({typed: $('typed').value, made: 0});
$('one').onclick = () => more(1);
$('ten').onclick = () => more(10);
$('kv').onchange = () => ask({kv: $('kv').value});
for (const name of ['temperature', 'seed'])
  $(name).onchange = () => {
    const x = +$(name).value, sound = Number.isFinite(x) && x >= 0 && (name != 'seed' || x % 1 == 0);
    if (!sound) return say(`${name}: expected a number from 0 up`);
    asked[name] = x;
    if (asked.made) ask({});
  };
$('ask').onkeydown = event => {
  event.stopPropagation();
  if (event.key != 'Enter' || event.shiftKey || event.target != $('typed')) return;
  event.preventDefault();
  $('run').click();
};

$('small').onchange = $('first').onchange = redraw;
matchMedia('(prefers-color-scheme: dark)').onchange = redraw;
addEventListener('resize', show);
addEventListener('hashchange', begin);
load(JSON.parse($('view').textContent),
     Uint8Array.from(atob($('numbers').textContent), c => c.charCodeAt(0)).buffer);
if (view.live) live();
begin();
