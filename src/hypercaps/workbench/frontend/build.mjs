// Bundles the page into ../static (or the folder given), or, with --tests, the tests into .tests/.
import { build } from 'esbuild';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);

/** Names of the packages whose code is in the bundle. */
function packagesOf(metafile) {
  const names = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) names.add(found[1]);
  }
  return [...names].sort();
}

function licenceOf(name) {
  const folder = join('node_modules', name);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const text = file ? readFileSync(join(folder, file), 'utf8').trim() : `Licence: ${about.license}`;
  return `${name} ${about.version} (${about.license})\n\n${text}\n`;
}

async function page(target) {
  mkdirSync(target, { recursive: true });
  const done = await build({
    entryPoints: { app: 'src/main.ts' },
    bundle: true,
    minify: true,
    format: 'iife',
    target: ['es2022'],
    charset: 'utf8',
    legalComments: 'none', // licences.txt has them
    outdir: target,
    metafile: true,
    logLevel: 'warning',
  });
  for (const file of ['index.html', 'icon.svg']) cpSync(file, join(target, file));
  writeFileSync(join(target, 'licences.txt'), packagesOf(done.metafile).map(licenceOf).join(`\n${'-'.repeat(80)}\n\n`));
  const sizes = readdirSync(target).filter((file) => /\.(js|css|html|svg)$/.test(file)).map((file) => gzipSync(readFileSync(join(target, file))).length);
  console.log(`page: ${Math.round(sizes.reduce((a, b) => a + b, 0) / 1000)} kB gzip`);
}

async function tests() {
  rmSync('.tests', { recursive: true, force: true });
  const files = readdirSync('tests').filter((file) => file.endsWith('.test.ts')).map((file) => join('tests', file));
  await build({ entryPoints: files, bundle: true, platform: 'node', format: 'esm', outdir: '.tests', outExtension: { '.js': '.mjs' }, sourcemap: 'inline', logLevel: 'warning' });
}

const argument = process.argv[2];
if (argument === '--tests') await tests();
else await page(resolve(argument ?? join('..', 'static')));
