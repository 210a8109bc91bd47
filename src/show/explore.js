'use strict';
const $ = id => document.getElementById(id);
const texts = [...$('tokens').children].map(e => e.textContent), n = texts.length;
const heads = [...document.querySelectorAll('#heads button')];
const columns = document.querySelectorAll('.row:first-child button').length;
const HEIGHT = 20, WIDTH = 150; // of a token, of the lines between
const SMALL = 38; // pixels of a small map
const LABELS = 56, ROOM = 6; // pixels beside the large map with labels, and without
const MOST = 3; // heads at once, and colours
const bytes = Uint8Array.from(atob($('weights').textContent), c => c.charCodeAt(0));
const at = {side: 'queries', token: -1, small: false, first: false};
const items = {};
// The heads that are shown, each with its colour; the large map is of the last.
let picked = [{head: 0, colour: 0}];

// Weights come as bytes b, each (b / 255)^2; those of a map's rows follow each other, row i with
// i + 1 of them. This is the one that query i gives to key j, and how dark it is shown.
function weight(head, i, j) {
  const b = bytes[head * n * (n + 1) / 2 + i * (i + 1) / 2 + j] / 255;
  return b * b;
}
function shade(w, j) {
  return at.first && j == 0 ? 0 : at.small ? Math.sqrt(w) : w;
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const ink = (colour, strength) => `rgba(var(--c${colour}),${strength})`;

// --- maps ---

// Draws a head into a square: where tokens are more than cells, a cell is its darkest weight.
function draw(pen, head, colour, left, top, size) {
  const side = Math.min(n, Math.floor(size)), cells = new Float32Array(side * side);
  const cell = t => Math.floor(t * side / n), edge = c => Math.round(c * size / side);
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      const c = cell(i) * side + cell(j);
      cells[c] = Math.max(cells[c], shade(weight(head, i, j), j));
    }
  const rgb = style('--c' + colour);
  cells.forEach((s, c) => {
    if (s < .004) return;
    const i = Math.floor(c / side), j = c % side;
    pen.fillStyle = `rgba(${rgb},${s})`;
    pen.fillRect(left + edge(j), top + edge(i), edge(j + 1) - edge(j), edge(i + 1) - edge(i));
  });
}

const mapSize = () => $('map').clientWidth - LABELS - ROOM;

// What draws on a canvas of so many pixels of the page a side.
function penOf(canvas, size) {
  const pen = canvas.getContext('2d'), dots = devicePixelRatio || 1;
  canvas.width = canvas.height = size * dots;
  pen.scale(dots, dots);
  return pen;
}

function drawLarge() {
  const {head, colour} = picked[picked.length - 1], t = at.token;
  const pen = penOf($('map'), $('map').clientWidth), size = mapSize(), token = size / n;
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
  const thick = Math.max(token, 3), from = (t + .5) * token - thick / 2;
  pen.strokeStyle = style('--text');
  if (at.side == 'queries') pen.strokeRect(LABELS, ROOM + from, (t + 1) * token, thick);
  else pen.strokeRect(LABELS + from, ROOM + t * token, thick, size - t * token);
}

// --- the text ---

function line(i, j, w, colour, aside) {
  const y = i * HEIGHT + HEIGHT / 2 + aside, z = j * HEIGHT + HEIGHT / 2 + aside;
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', `M0 ${y}C60 ${y} ${WIDTH - 60} ${z} ${WIDTH} ${z}`);
  path.setAttribute('opacity', (.1 + .9 * w).toFixed(3));
  path.style.stroke = ink(colour, 1);
  $('lines').append(path);
}

function element(name, text, colour) {
  const e = document.createElement(name);
  e.textContent = text;
  if (colour === undefined) return e;
  e.style.setProperty('--own', ink(colour, 1));
  e.prepend(document.createElement('i'));
  return e;
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
      const e = items[looks ? 'keys' : 'queries'][partner], more = ink(colour, .7 * s);
      e.stripes = `${k ? e.stripes + ',' : ''}${more} ${100 * from}% ${100 * to}%`;
      e.style.background = `linear-gradient(90deg,${e.stripes})`;
      if (w > 0) best.push([w, partner]);
    }
  best.sort((a, b) => b[0] - a[0]);
  const said = best.slice(0, picked.length > 1 ? 3 : 6).map(([w, p]) =>
    `'${texts[p]}' (${p}) ${(100 * w).toFixed(w < .1 ? 1 : 0)}%`);
  return said.join(', ') || 'nothing';
}

function show() {
  const t = at.token, all = t < 0, looks = at.side == 'queries';
  const last = picked[picked.length - 1], said = [];
  heads.forEach((b, h) => {
    const p = picked.find(p => p.head == h);
    b.setAttribute('aria-pressed', !!p);
    b.style.setProperty('--own', p ? ink(p.colour, 1) : '');
    b.tabIndex = h == last.head ? 0 : -1;
  });
  for (const side in items)
    items[side].forEach((e, i) => {
      const on = side == at.side && i == t;
      e.setAttribute('aria-selected', on);
      e.tabIndex = on || (all && i == 0) ? 0 : -1;
      e.style.background = '';
    });
  $('lines').replaceChildren();
  $('cards').replaceChildren(...picked.map(p => {
    const card = document.createElement('div'), b = heads[p.head];
    card.append(element('h2', 'Head ' + b.dataset.name, p.colour), element('p', b.title));
    card.lastChild.className = 'muted';
    return card;
  }));
  picked.forEach((p, k) => {
    const of = heads[p.head].dataset.name, what = showHead(p, k);
    if (!all) said.push(element('p', picked.length > 1 ? `${of}: ${what}` : what, p.colour));
  });
  const what = all ? 'All tokens: lines are weights of 0.1 and more.' :
    `'${texts[t]}' (${t}) ${looks ? 'looks at' : 'is looked at by'}`;
  $('said').replaceChildren(element(all ? 'p' : 'h2', what), ...said);
  $('legend').replaceChildren('Weight', ...[0, .25, .5, .75, 1].map(s => {
    const e = element('span', (at.small ? s * s : s).toFixed(2), last.colour);
    e.firstChild.style.background = ink(last.colour, s);
    return e;
  }));
  drawLarge();
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

function go(change) {
  if (change.side == at.side && change.token == at.token) return;
  Object.assign(at, change);
  show();
}
function redraw() {
  at.small = $('small').checked;
  at.first = $('first').checked;
  heads.forEach((b, h) => draw(penOf(b.firstElementChild, SMALL), h, 0, 0, 0, SMALL));
  show();
}
// Scrolls the text so that a token is within it.
function reveal(t, middle) {
  const text = $('text'), room = text.clientHeight - 2 * HEIGHT, top = t * HEIGHT;
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
  items[side] = texts.map((text, t) => {
    const e = document.createElement('li');
    e.textContent = text;
    e.setAttribute('role', 'option');
    e.setAttribute('aria-label', `token ${t}, ${text}`);
    e.token = {side, token: t};
    e.onclick = e.onfocus = () => go(e.token);
    return e;
  });
  $(side).append(...items[side]);
  $(side).onkeydown = event => {
    const aside = {ArrowLeft: 'queries', ArrowRight: 'keys'}[event.key];
    const to = aside ? at.token : target(event.key, at.token, n, 1);
    if (to < 0 || at.token < 0) return;
    event.preventDefault();
    items[aside || side][to].focus({preventScroll: true});
    go({side: aside || side, token: to});
    reveal(to);
    items[aside || side][to].scrollIntoView({block: 'nearest'});
  };
}

// Browsers send mouse events also when the page scrolls below a pointer that rests. It must not take
// back what keys have picked: it counts when it has another place in the window than before.
let place;
document.addEventListener('mousemove', event => {
  const before = place;
  place = event.clientX + ',' + event.clientY;
  if (before === undefined || before == place) return;
  const item = event.target.closest('#text li');
  if (item) return go(item.token);
  if (event.target != $('map')) return;
  const t = Math.floor((event.offsetY - ROOM) / mapSize() * n);
  if (event.offsetX < LABELS || t < 0 || t >= n) return;
  go({side: 'queries', token: t});
  reveal(t);
});

$('heads').onkeydown = event => {
  const focus = heads.indexOf(document.activeElement);
  const from = focus < 0 ? picked[picked.length - 1].head : focus;
  const to = target(event.key, from, heads.length, columns);
  if (to < 0) return;
  event.preventDefault();
  heads[to].focus();
  if (!event.shiftKey) pick(to);
};
// Of clicks that are a key's (Space, Enter) detail is 0.
heads.forEach((b, h) => { b.onclick = event => pick(h, event.shiftKey || event.detail == 0); });
document.addEventListener('keydown', event => {
  if (event.key == 'Escape') go({side: 'queries', token: -1});
});

$('lines').setAttribute('height', n * HEIGHT);
$('small').onchange = $('first').onchange = redraw;
matchMedia('(prefers-color-scheme: dark)').onchange = redraw;
addEventListener('resize', drawLarge);
// FILE.html#1.3,0.5@12 begins with heads 1.3 and 0.5 and the query at position 12.
const [names, token] = location.hash.slice(1).split('@');
const wanted = names.split(',').map(name => heads.findIndex(b => b.dataset.name == name));
picked = [...new Set(wanted)].filter(h => h >= 0).slice(0, MOST)
  .map((head, colour) => ({head, colour}));
if (!picked.length) picked = [{head: 0, colour: 0}];
at.token = +token >= 0 && +token < n ? Math.floor(+token) : -1;
redraw();
if (at.token >= 0) reveal(at.token, true);
