// Files by callbacks, promises, streams and synchronous calls; directories, links and modes.
'use strict';
const fs = require('fs');
const { pipeline } = require('stream/promises');
const zlib = require('zlib');
const crypto = require('crypto');
const rounds = Number(process.argv[2]);

async function main() {
  fs.mkdirSync('tree', { recursive: true });
  for (let round = 1; round <= rounds; round++) {
    const directory = `tree/${round % 12}`;
    await fs.promises.rm(directory, { recursive: true, force: true });
    await fs.promises.mkdir(directory);
    await Promise.all(Array.from({ length: 12 }, async (_, i) => {
      const name = `${directory}/file-${i}`;
      await fs.promises.writeFile(name, `round ${round} file ${i}\n`.repeat(200 + i));
      if (i % 3 === 0) await fs.promises.chmod(name, 0o640);
      if (i % 4 === 0) await fs.promises.symlink(`file-${i}`, `${directory}/link-${i}`);
    }));
    await pipeline(
      fs.createReadStream(`${directory}/file-7`),
      zlib.createGzip(),
      fs.createWriteStream(`${directory}/packed`));
    const back = zlib.gunzipSync(fs.readFileSync(`${directory}/packed`));
    const names = (await fs.promises.readdir(directory)).sort();
    const digest = crypto.createHash('sha256');
    for (const name of names) digest.update(fs.readFileSync(`${directory}/${name}`));
    fs.appendFileSync('journal', `${round} ${names.length}\n`);
    fs.unlinkSync(`${directory}/packed`);
    console.log(round, names.length, back.length, digest.digest('hex').slice(0, 16));
  }
}
main();
