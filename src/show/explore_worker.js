'use strict';
// What runs beside a page that is live: the module (see src/cli/attend.h) with the checkpoint.
let module, live, into, used = 0;

// The module asks for nothing outside; what the C library could ask for, it does not get.
const none = new Proxy({}, {get: (_, name) => () => {
  if (name == 'proc_exit') throw Error('the module has stopped');
  return 52; // not there
}});
function bytesOf(base64) {
  const digits = atob(base64), bytes = new Uint8Array(digits.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = digits.charCodeAt(i);
  return bytes;
}
const memory = () => module.memory.buffer;

// The bytes in memory of the module's, a zero behind them; null if it has no more.
function put(bytes) {
  const at = module.malloc(bytes.length + 1);
  if (!at) throw Error('there is no memory left');
  new Uint8Array(memory(), at, bytes.length + 1).set(bytes);
  new Uint8Array(memory())[at + bytes.length] = 0;
  return at;
}
const text = s => new TextEncoder().encode(s);
const string = at => {
  const bytes = new Uint8Array(memory(), at);
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
};
function answer() {
  const [error, view, viewLen, numbers, numbersLen] = new Uint32Array(memory(), live, 5);
  if (error) throw Error(string(error));
  return viewLen ? {view: JSON.parse(new TextDecoder().decode(new Uint8Array(memory(), view, viewLen))),
                    numbers: memory().slice(numbers, numbers + numbersLen)} : {};
}

const steps = {
  async module({base64, bytes}) {
    const zipped = new Blob([bytesOf(base64)]).stream();
    const code = await new Response(zipped.pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
    const made = await WebAssembly.instantiate(code, {wasi_snapshot_preview1: none});
    module = made.instance.exports;
    module._initialize();
    into = put(new Uint8Array(bytes));
  },
  part({base64, bytes}) { // zeros may follow the last bytes
    const part = bytesOf(base64).subarray(0, bytes - used);
    new Uint8Array(memory(), into + used, part.length).set(part);
    used += part.length;
  },
  open({name}) {
    live = module.live_open(into, used, put(text(name)));
    if (!live) throw Error('there is no memory left');
    return answer();
  },
  show({typed, made, temperature, seed, kv}) {
    const bytes = text(typed), at = put(bytes), heads = put(text(kv));
    module.live_show(live, at, bytes.length, made, temperature, BigInt(seed), heads);
    module.free(at);
    module.free(heads);
    return answer();
  },
};
// One after the other; each is answered, with what came of it or why nothing did.
let before = Promise.resolve();
onmessage = ({data}) => {
  before = before.then(() => steps[data.step](data)).catch(e => ({error: e.message})).then(made => {
    postMessage({id: data.id, step: data.step, ...made}, made && made.numbers ? [made.numbers] : []);
  });
};
