'use strict';
const $ = id => document.getElementById(id);
const texts = [...$('tokens').children].map(e => e.textContent), n = texts.length;
const heads = [...document.querySelectorAll('#heads button')];
const columns = document.querySelectorAll('.row:first-child button').length;
const HEIGHT = 20, WIDTH = 150;
const bytes = Uint8Array.from(atob($('weights').textContent), c => c.charCodeAt(0));
const at = {head: 0, side: 'queries', token: -1, small: false, first: false};
const items = {};

// The weight that query i gives to key j, and how dark it is shown.
function weight(head, i, j) {
  const b = bytes[head * n * (n + 1) / 2 + i * (i + 1) / 2 + j] / 255;
  return b * b;
}
function shade(w, j) {
  return at.first && j == 0 ? 0 : at.small ? Math.sqrt(w) : w;
}

// A map of a head: where tokens are more than cells, a cell is the darkest of its own.
function draw(canvas, head, most) {
  const side = Math.min(n, most), cells = new Float32Array(side * side);
  const cell = t => Math.floor(t * side / n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      const c = cell(i) * side + cell(j);
      cells[c] = Math.max(cells[c], shade(weight(head, i, j), j));
    }
  const scale = Math.max(1, Math.floor(most / side)), pen = canvas.getContext('2d');
  canvas.width = canvas.height = side * scale;
  const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink');
  cells.forEach((s, c) => {
    pen.fillStyle = `rgba(${ink},${s})`;
    pen.fillRect(c % side * scale, Math.floor(c / side) * scale, scale, scale);
  });
  if (canvas.id && at.token >= 0) {
    const edge = cell(at.token) * scale, rows = at.side == 'queries';
    pen.strokeStyle = `rgb(${ink})`;
    pen.strokeRect(rows ? 0 : edge, rows ? edge : 0,
                   rows ? canvas.width : scale, rows ? scale : canvas.height);
  }
}

function line(i, j, w) {
  const y = i * HEIGHT + HEIGHT / 2, z = j * HEIGHT + HEIGHT / 2;
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', `M0 ${y}C60 ${y} ${WIDTH - 60} ${z} ${WIDTH} ${z}`);
  path.setAttribute('opacity', (.1 + .9 * w).toFixed(3));
  $('lines').append(path);
}

function show() {
  const t = at.token, all = t < 0, looks = at.side == 'queries', best = [];
  heads.forEach((b, h) => {
    b.setAttribute('aria-checked', h == at.head);
    b.tabIndex = h == at.head ? 0 : -1;
  });
  $('name').textContent = 'Head ' + heads[at.head].dataset.name;
  $('note').textContent = heads[at.head].title;
  draw($('map'), at.head, 360);
  $('lines').replaceChildren();
  for (const side in items)
    items[side].forEach((e, i) => {
      const picked = side == at.side && i == t;
      e.setAttribute('aria-selected', picked);
      e.tabIndex = picked || (all && i == 0) ? 0 : -1;
      e.style.removeProperty('--w');
    });
  // All weights; or of the token picked those with which it looks, or is looked at.
  for (let i = all ? 0 : t; i < (looks && !all ? t + 1 : n); i++)
    for (let j = looks ? 0 : t; j <= (looks ? i : t); j++) {
      const w = weight(at.head, i, j), s = shade(w, j), partner = looks ? j : i;
      if (s >= .01 && (w >= .1 || !all)) line(i, j, s);
      if (all) continue;
      items[looks ? 'keys' : 'queries'][partner].style.setProperty('--w', s);
      const percent = (100 * w).toFixed(w < .1 ? 1 : 0) + '%';
      best.push([w, `'${texts[partner]}' (${partner}) ${percent}`]);
    }
  best.sort((a, b) => b[0] - a[0]);
  $('said').textContent = all ? 'All tokens: lines are weights of 0.1 and more.' :
    `'${texts[t]}' (${t}) ${looks ? 'looks at' : 'is looked at by'} ` +
    (best.filter(p => p[0] > 0).slice(0, 6).map(p => p[1]).join(', ') || 'nothing');
}

function go(change, focus) {
  if (change.side == at.side && change.token == at.token) return;
  Object.assign(at, change);
  show();
  if (focus) focus.focus();
}
function redraw() {
  at.small = $('small').checked;
  at.first = $('first').checked;
  heads.forEach((b, h) => draw(b.firstElementChild, h, 64));
  show();
}

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
    e.onmouseenter = e.onfocus = () => go({side, token: t});
    return e;
  });
  $(side).append(...items[side]);
  $(side).onkeydown = event => {
    const aside = {ArrowLeft: 'queries', ArrowRight: 'keys'}[event.key];
    const to = aside ? at.token : target(event.key, at.token, n, 1);
    if (to < 0 || at.token < 0) return;
    event.preventDefault();
    go({side: aside || side, token: to}, items[aside || side][to]);
  };
}
$('heads').onkeydown = event => {
  const to = target(event.key, at.head, heads.length, columns);
  if (to < 0) return;
  event.preventDefault();
  go({head: to}, heads[to]);
};
heads.forEach((b, h) => { b.onclick = () => go({head: h}); });
document.addEventListener('keydown', event => {
  if (event.key == 'Escape') go({side: 'queries', token: -1});
});
$('map').onmousemove = event => {
  const t = Math.floor(event.offsetY / $('map').clientHeight * n);
  go({side: 'queries', token: Math.max(0, Math.min(n - 1, t))});
};
$('lines').setAttribute('height', n * HEIGHT);
$('small').onchange = $('first').onchange = redraw;
matchMedia('(prefers-color-scheme: dark)').onchange = redraw;
// FILE.html#1.3@12 begins with head 1.3 and the query at position 12.
const [name, token] = location.hash.slice(1).split('@');
at.head = Math.max(0, heads.findIndex(b => b.dataset.name == name));
at.token = +token >= 0 && +token < n ? Math.floor(+token) : -1;
redraw();
if (at.token >= 0) items.queries[at.token].scrollIntoView({block: 'center'});
