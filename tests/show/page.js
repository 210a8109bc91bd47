// page.js - what a reader does on the page of attend --html, and what must be seen then. page.sh adds
// it to a page of at least 90 tokens and reads the results, a line each, from the document.
const key = (e, name, more) =>
  e.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, ...more}));
const point = (e, name, x, y, pointerType = 'mouse') =>
  e.dispatchEvent(new PointerEvent(name, {clientX: x, clientY: y, pointerType, bubbles: true}));
const move = (e, x, y) => point(e, 'pointermove', x, y);
const chosen = () => document.querySelector('[aria-selected=true]');
const position = () => [...chosen().parentNode.children].indexOf(chosen());
const pressed = () =>
  heads.filter(b => b.getAttribute('aria-pressed') == 'true').map(b => b.dataset.name).join();
const click = (h, shiftKey) =>
  heads[h].dispatchEvent(new MouseEvent('click', {shiftKey, detail: 1, bubbles: true}));
const colours = () => new Set([...document.querySelectorAll('#lines path')]
  .map(p => getComputedStyle(p).stroke)).size;
const list = $('queries'), results = [];
const check = (what, found, expected) => results.push(
  `${found === expected ? 'ok' : 'FAILED'} ${what}: expected ${expected}, found ${found}`);

const bars = name => document.querySelectorAll(name).forEach(e =>
  check(`scroll bar across ${e.id || e.tagName}`, e.scrollWidth <= e.clientWidth, true));
bars('html,#heads,#lists,#answers');

check('it opens with the last token kept', position() + ' ' + at.kept, '99 true');
$('all').click();

// The pointer, and then keys while it rests: what is below it changes, as the text scrolls.
move(list.children[3], 10, 10);
check('a first place is no movement', chosen(), null);
$('lists').scrollTop = 300;
const box = list.children[25].getBoundingClientRect(), x = box.left + 9, y = box.top + 9;
move(list.children[25], x, y);
check('the pointer picks', position(), 25);
for (let i = 0; i < 60; i++) {
  key(list, 'ArrowDown');
  move(document.elementFromPoint(x, y), x, y);
}
check('60 x Down beside a resting pointer', position(), 85);
check('the text has scrolled', $('lists').scrollTop > 300, true);
move(list.children[40], x, y + 1);
check('the pointer moves again', position(), 40);
key(list, 'ArrowDown');
key(list, 'ArrowRight');
check('arrows pick the other side', chosen().parentNode.id + position(), 'keys41');
check('what is said', $('said').textContent.includes('(41) is looked at by'), true);
$('keys').children[5].click();
check('a click picks', chosen().parentNode.id + position(), 'keys5');
$('keys').children[5].click();
const map = $('map').getBoundingClientRect();
move($('map'), map.left + 100, map.top + 7);
check('the map picks', chosen().parentNode.id + position(), 'queries0');
key(list, 'Escape');
check('Escape shows all', chosen(), null);

// What is kept, and a cell of the map; the address has both.
list.children[20].click();
move(list.children[40], x, y + 3);
check('a click keeps', position() + ' ' + at.kept, '20 true');
check('the address has it', location.hash, '#0.0@20!');
list.children[20].click();
move(list.children[40], x, y + 4);
check('a second click lets go', position(), 40);
const size = mapSize() / n, cell = (i, j) =>
  [map.left + LABELS + (j + .5) * size, map.top + ROOM + (i + .5) * size];
move($('map'), ...cell(30, 7));
check('each head has the token\'s largest weight', heads.every(b => {
  const most = Math.max(...Array.from({length: 31}, (_, j) => weight(b.of, 30, j)));
  return b.lastChild.textContent.endsWith(amount(most).slice(1));
}), true);
check('a cell has its weight', $('said').textContent.includes('of the weight is on') &&
  $('said').textContent.includes('(7)'), true);
check('the address has the cell', location.hash, '#0.0@30:7');
const lines = [...document.querySelectorAll('#lines path')];
check('a line has its cell', lines.every(p => p.cell.token == 30), true);
point(list.children[11], 'pointermove', 3, 3, 'touch');
check('a finger that moves picks nothing', position(), 30);
$('all').click();
check('a button shows all', chosen() + location.hash, 'null#0.0');
location.hash = '#1.2,0.3@9k';
begin();
check('an address is followed', pressed() + chosen().parentNode.id + position(), '0.3,1.2keys9');
key(list, 'Escape');
click(0);

// Words stay readable on the darkest shade that a token gets.
const light = c => c.map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
  .reduce((s, x, i) => s + x * [.2126, .7152, .0722][i], 0);
const rgb = name => style(name).startsWith('#') ?
  style(name).slice(1).match(style(name).length == 4 ? /./g : /../g)
    .map(h => parseInt(h.length == 1 ? h + h : h, 16)) : style(name).split(',').map(Number);
const most = +style('--most');
for (const name of ['--c0', '--c1', '--c2']) {
  const shade = light(rgb(name).map((x, i) => most * x + (1 - most) * rgb('--paper')[i]));
  const [low, high] = [shade, light(rgb('--text'))].sort((a, b) => a - b);
  check(`contrast of 4.5 on ${name}`, (high + .05) / (low + .05) >= 4.5, true);
}

// Heads.
key($('heads'), 'ArrowDown');
key($('heads'), 'ArrowRight');
key($('heads'), 'ArrowUp');
check('arrows pick a head', pressed(), '0.1');
key($('heads'), 'ArrowUp');
check('there is none above', pressed(), '0.1');
check('a colour', colours(), 1);
click(13, true);
check('Shift-click adds', pressed(), '0.1,1.5');
check('two colours', colours(), 2);
check('a card each', $('cards').children.length, 2);
move(list.children[30], 50, 51);
check('two colours of a token', colours(), 2);
check('two stripes', $('keys').children[29].style.background.match(/rgba/g).length, 2);
key($('heads'), 'ArrowRight', {shiftKey: true});
document.activeElement.click(); // as Space does
check('Space adds', pressed() + ' ' + colours(), '0.1,0.2,1.5 3');
click(31, true);
check('three at most', pressed() + ' ' + colours(), '0.2,1.5,3.7 3');
click(13, true);
check('Shift-click takes away', pressed() + ' ' + colours(), '0.2,3.7 2');
$('add').click();
click(9);
check('with the button a click adds', pressed(), '0.2,1.1,3.7');
$('add').click();
click(4);
check('a click picks one', pressed() + ' ' + colours(), '0.4 1');
$('first').click();
move(list.children[0], 60, 61);
check('the first token is left out', document.querySelectorAll('#lines path').length, 0);
bars('html,#heads,#lists,#answers');

const dots = $('map').getContext('2d').getImageData(0, 0, LABELS - 2, $('map').height).data;
$('small').click();
check('the legend says that it is no linear scale', $('legend').textContent.includes('root'), true);
$('small').click();
$('heads').style.maxHeight = '80px';
location.hash = '#3.5';
begin();
const row3 = heads[29].getBoundingClientRect(), shown = $('heads').getBoundingClientRect();
check('an address scrolls to its head', row3.top >= shown.top - 1 && row3.top < shown.bottom, true);
check('and looks at no token', chosen(), null);
location.hash = '#%zz';
begin();
check('a malformed address is none', position(), 99);
check('the map has labels', dots.some((b, i) => i % 4 == 3 && b > 128), true);
document.body.append(element('pre', '\n' + results.join('\n') + '\n'));
