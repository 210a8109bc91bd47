// live.js - in a page that is live: asks for texts and says to the page around it the checksums of the
// weights that come, and what is shown. page.sh adds it, behind `const CASES`: a list of what is asked
// for with what is expected of it.
const crcs = Array.from({length: 256}, (_, i) => {
  for (let k = 0; k < 8; k++) i = i & 1 ? i >>> 1 ^ 0xedb88320 : i >>> 1;
  return i >>> 0;
});
const crc32 = bytes => ~bytes.reduce((c, b) => crcs[(c ^ b) & 255] ^ c >>> 8, -1) >>> 0;
const tell = text => parent.postMessage(text, '*');
const until = async (what, holds) => {
  const end = performance.now() + 60000;
  while (!holds()) {
    if (performance.now() > end) throw Error(`${what} never came: ${$('state').textContent}`);
    await new Promise(done => setTimeout(done, 5));
  }
};
let longest = 0;
new PerformanceObserver(list => {
  for (const task of list.getEntries()) longest = Math.max(longest, task.duration);
}).observe({entryTypes: ['longtask']});

async function answer(question) {
  const start = performance.now(), number = questions + 1;
  question();
  await until('an answer', () => questions == number && $('state').textContent != '…' && ready);
  return performance.now() - start;
}
addEventListener('load', async () => {
  try {
    await until('the module', () => ready);
    longest = 0;
    for (const {what, typed, made = 0, temperature = 0.8, seed = 1, kv = '', tokens, crc, says} of CASES) {
      const took = await answer(() => ask({typed, made, temperature, seed, kv}));
      const all = new Uint8Array(maps[0].buffer, maps[0].byteOffset, maps.length * maps[0].byteLength);
      const found = says ? $('state').textContent : crc32(all), wanted = says || crc;
      const right = (says ? found.includes(says) : found === wanted) && (!tokens || n == tokens) &&
        !view.subtitle.includes('cached');
      tell(`${right ? 'ok' : 'FAILED'} ${what}: expected ${wanted}, found ${found}, ` +
        `${n} tokens of ${tokens || n}, ${took.toFixed(0)} ms`);
    }
    // What a reader does: types, Enter, ten tokens, other K/V heads, and goes to the address.
    $('typed').value = 'My lord';
    await answer(() => $('typed').dispatchEvent(
      new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true})));
    const begun = n;
    await answer(() => $('one').click());
    await answer(() => $('ten').click());
    tell(`${n == begun + 11 ? 'ok' : 'FAILED'} eleven tokens more: ${n} after ${begun}`);
    const address = location.hash, [text, crc] = [view.live.text, crc32(new Uint8Array(maps[0].buffer))];
    await answer(() => { $('typed').value = 'x'; $('run').click(); });
    const number = questions;
    location.hash = address;
    await until('the address', () => questions > number && $('state').textContent != '…');
    tell(`${view.live.text == text && crc32(new Uint8Array(maps[0].buffer)) == crc ? 'ok' : 'FAILED'} ` +
      `an address has its text: ${view.live.text}`);
    tell(`${longest < 400 ? 'ok' : 'FAILED'} nothing waits: the longest task took ${longest} ms`);
  } catch (e) {
    tell('FAILED ' + e.message);
  }
  tell('end');
});
