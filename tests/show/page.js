// page.js - what a reader does on the page of attend --html, and what must be seen then. page.sh adds
// it to a page of at least 90 tokens and reads the results, a line each, from the document.
const key = (e, name, more) =>
  e.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, ...more}));
const move = (e, x, y) =>
  e.dispatchEvent(new MouseEvent('mousemove', {clientX: x, clientY: y, bubbles: true}));
const chosen = () => document.querySelector('[aria-selected=true]');
const position = () => [...chosen().parentNode.children].indexOf(chosen());
const pressed = () =>
  heads.filter(b => b.getAttribute('aria-pressed') == 'true').map(b => b.dataset.name).join();
const colours = () => new Set([...document.querySelectorAll('#lines path')]
  .map(p => getComputedStyle(p).stroke)).size;
const list = $('queries'), results = [];
const check = (what, found, expected) => results.push(
  `${found === expected ? 'ok' : 'FAILED'} ${what}: expected ${expected}, found ${found}`);

const bars = name => document.querySelectorAll(name).forEach(e =>
  check(`scroll bar across ${name}`, e.scrollWidth <= e.clientWidth, true));
bars('html,#heads,#text,#about > div');

// The pointer, and then keys while it rests: what is below it changes, as the text scrolls.
move(list.children[3], 10, 10);
check('a first place is no movement', chosen(), null);
$('text').scrollTop = 300;
const box = list.children[25].getBoundingClientRect(), x = box.left + 9, y = box.top + 9;
move(list.children[25], x, y);
check('the pointer picks', position(), 25);
for (let i = 0; i < 60; i++) {
  key(list, 'ArrowDown');
  move(document.elementFromPoint(x, y), x, y);
}
check('60 x Down beside a resting pointer', position(), 85);
check('the text has scrolled', $('text').scrollTop > 300, true);
move(list.children[40], x, y + 1);
check('the pointer moves again', position(), 40);
key(list, 'ArrowDown');
key(list, 'ArrowRight');
check('arrows pick the other side', chosen().parentNode.id + position(), 'keys41');
check('what is said', $('said').textContent.includes('(41) is looked at by'), true);
$('keys').children[5].click();
check('a click picks', chosen().parentNode.id + position(), 'keys5');
const map = $('map').getBoundingClientRect();
move($('map'), map.left + 100, map.top + 7);
check('the map picks', chosen().parentNode.id + position(), 'queries0');
key(list, 'Escape');
check('Escape shows all', chosen(), null);

// Heads.
key($('heads'), 'ArrowDown');
key($('heads'), 'ArrowRight');
key($('heads'), 'ArrowUp');
check('arrows pick a head', pressed(), '0.1');
key($('heads'), 'ArrowUp');
check('there is none above', pressed(), '0.1');
check('a colour', colours(), 1);
const click = (h, shiftKey) =>
  heads[h].dispatchEvent(new MouseEvent('click', {shiftKey, detail: 1, bubbles: true}));
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
click(4);
check('a click picks one', pressed() + ' ' + colours(), '0.4 1');
$('first').click();
move(list.children[0], 60, 61);
check('the first token is left out', document.querySelectorAll('#lines path').length, 0);
bars('html,#heads,#text,#about > div');

const dots = $('map').getContext('2d').getImageData(0, 0, LABELS - 2, $('map').height).data;
check('the map has labels', dots.some((b, i) => i % 4 == 3 && b > 128), true);
document.body.append(element('pre', '\n' + results.join('\n') + '\n'));
