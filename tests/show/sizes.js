// sizes.js - in a frame of some size: points at cells of each edge of the large map, and says to the page
// around it what is found. page.sh adds it to a page of about twenty tokens.
addEventListener('load', () => setTimeout(() => {
  const faults = [], map = $('map'), size = `${innerWidth}x${innerHeight}`;
  const check = (what, ok) => ok || faults.push(what);
  $('all').click();
  check('the page scrolls across', document.documentElement.scrollWidth <= innerWidth);
  const all = map.getBoundingClientRect();
  check(`the map is ${all.width} by ${all.height}`, Math.abs(all.width - all.height) < 1);
  check(`the map is small: ${all.width}`, all.width >= Math.min(300, .8 * innerWidth));
  const dot = map.getContext('2d').getImageData((LABELS + 3) * devicePixelRatio,
    (ROOM + 3) * devicePixelRatio, 1, 1).data;
  check(`the first cell is ${dot}`, dot.slice(0, 3).join() == style('--c0').trim());
  if (innerWidth < 500) {
    check('heads come before the map', all.top < $('heads').getBoundingClientRect().top);
    check('an empty panel is large', $('answers').clientHeight < 60);
  }
  const half = n >> 1, end = n - 1;
  const cells = [[0, 0], [1, 0], [half, 0], [end, 0], [end, 1], [end, half], [end, end - 1], [end, end],
                 [half, half], [half, half - 1], [1, 1]];
  for (const [i, j] of cells)
    for (const inset of [.1, .9]) {
      const place = () => {
        const r = map.getBoundingClientRect(), room = LABELS + ROOM;
        return [r.left + LABELS + (j + inset) * (r.width - room) / n,
                r.top + ROOM + (i + inset) * (r.height - room) / n];
      };
      scrollBy(0, place()[1] - innerHeight / 4);
      const [x, y] = place(), e = document.elementFromPoint(x, y);
      check(`something is above cell ${i}:${j}`, e == map);
      for (const more of [0, .01])
        map.dispatchEvent(new PointerEvent('pointermove',
          {clientX: x + more, clientY: y, pointerType: 'mouse', bubbles: true}));
      const answer = $('said').textContent;
      check(`cell ${i}:${j} answers ${answer}`, answer.startsWith(named(i)) &&
        answer.includes(`${amount(weight(0, i, j))} of the weight is on ${named(j)}`));
    }
  parent.postMessage(`${faults.length ? 'FAILED' : 'ok'} at ${size}: ${faults.join('; ')}`, '*');
}, 100));
