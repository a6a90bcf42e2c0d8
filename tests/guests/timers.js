// Timers, promises, microtasks and a child process, in a fixed order.
'use strict';
const { setTimeout: sleep } = require('timers/promises');
const { execFile } = require('child_process');
const { promisify } = require('util');
const run = promisify(execFile);
const rounds = Number(process.argv[2]);

let early = 0;
async function punctual(milliseconds) {
  const before = process.hrtime.bigint();
  await sleep(milliseconds);
  // Timers of Node count in whole milliseconds.
  if (process.hrtime.bigint() - before < BigInt((milliseconds - 1) * 1e6)) early++;
}

async function main() {
  let ticks = 0;
  const interval = setInterval(() => ticks++, 3);
  let last = process.hrtime.bigint();
  let backwards = 0;
  for (let round = 1; round <= rounds; round++) {
    const order = [];
    await Promise.all([20, 5, 35, 12].map(async (ms) => {
      await punctual(ms);
      order.push(ms);
    }));
    let value = round;
    for (let i = 0; i < 200000; i++) {
      value = (value * 48271) % 2147483647;
      if (i % 1000 === 0) {
        const now = process.hrtime.bigint();
        if (now < last) backwards++;
        last = now;
      }
    }
    // The order of times that are far apart: none of them is a race.
    console.log(round, order.sort((a, b) => a - b).join(), value);
    if (round % 10 === 0) {
      const { stdout } = await run('sh', ['-c', `echo child ${round}; exit 0`]);
      process.stdout.write(stdout);
    }
  }
  clearInterval(interval);
  console.log('early', early, 'backwards', backwards, 'ticked', ticks > 0);
  process.exitCode = 9;
}
main();
