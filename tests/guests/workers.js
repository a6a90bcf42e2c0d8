// Worker threads that compute and talk to each other by messages and shared memory of their own.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');

if (!isMainThread) {
  parentPort.on('message', ({ id, seed }) => {
    let state = BigInt(seed);
    const seen = new Map();
    for (let i = 0; i < 20000; i++) {
      state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
      const key = Number(state >> 54n);
      seen.set(key, (seen.get(key) || 0) + 1);
    }
    const text = [...seen].sort((a, b) => a[0] - b[0]).join(';');
    Atomics.add(workerData.counter, 0, 1);
    parentPort.postMessage({ id, digest: crypto.createHash('sha1').update(text).digest('hex') });
  });
} else {
  const rounds = Number(process.argv[2]);
  const counter = new Int32Array(new SharedArrayBuffer(4));
  const workers = Array.from({ length: 4 }, () => new Worker(__filename, { workerData: { counter } }));
  const results = [];
  let sent = 0;
  const total = rounds * 4;
  const send = (worker) => {
    if (sent < total) worker.postMessage({ id: sent, seed: sent++ });
  };
  for (const worker of workers) {
    worker.on('message', ({ id, digest }) => {
      results.push([id, digest]);
      if (results.length === total) {
        results.sort((a, b) => a[0] - b[0]);
        for (const [id, digest] of results) if (id % 16 === 0) console.log(id, digest);
        console.log('counted', Atomics.load(counter, 0));
        for (const worker of workers) worker.terminate();
      }
      send(worker);
    });
    send(worker);
    send(worker);
  }
}
