import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CHUNK, changeOf, chunkKey, LabelRaster } from '../src/labelRaster';

function loaded(levels = 1): LabelRaster {
  const raster = new LabelRaster({ rows: 300, cols: 600 }, levels);
  for (let y = 0; y < 2; y++) for (let x = 0; x < 3; x++) raster.put(0, x, y, new Uint8Array(CHUNK * CHUNK));
  if (levels > 1) for (let x = 0; x < 2; x++) raster.put(1, x, 0, new Uint8Array(CHUNK * CHUNK));
  return raster;
}

test('a span across chunks is painted in each', () => {
  const raster = loaded();
  const painted = raster.paint([[255, 250, 520]], 3);
  for (const [col, value] of [[249, 0], [250, 3], [256, 3], [519, 3], [520, 0]] as const) assert.equal(raster.valueAt(255, col), value);
  assert.equal(raster.valueAt(256, 300), 0);
  assert.deepEqual(painted.touched, { row0: 255, row1: 256, col0: 250, col1: 520 });
});

test('what was there before is told, and applying it undoes the paint', () => {
  const raster = loaded();
  raster.paint([[10, 0, 4]], 1);
  raster.paint([[10, 4, 6]], 2);
  const { before } = raster.paint([[10, 2, 8]], 3);
  assert.deepEqual([...before].sort(), [[0, [[10, 6, 8]]], [1, [[10, 2, 4]]], [2, [[10, 4, 6]]]]);
  raster.apply(before);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].map((col) => raster.valueAt(10, col)), [1, 1, 1, 1, 2, 2, 0, 0]);
});

test('locked classes keep their pixels', () => {
  const raster = loaded();
  raster.paint([[10, 2, 4]], 1);
  raster.paint([[10, 0, 6]], 0, new Set([1]));
  raster.paint([[10, 0, 6]], 2, new Set([1]));
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((col) => raster.valueAt(10, col)), [2, 2, 1, 1, 2, 2]);
});

test('what has not been loaded is unknown and is not painted', () => {
  const raster = new LabelRaster({ rows: 300, cols: 600 }, 1);
  assert.equal(raster.paint([[1, 0, 5]], 3).before.size, 0);
  assert.equal(raster.valueAt(1, 1), null);
});

test('coarse chunks show labels at once, and ask again after erasing', () => {
  const raster = loaded(2);
  raster.paint([[9, 100, 101]], 4);
  assert.equal(raster.get(1, 0, 0)![4 * CHUNK + 50], 4);
  assert.equal(raster.stale.size, 0);
  raster.paint([[9, 100, 101]], 0);
  assert.deepEqual([...raster.stale], [chunkKey(1, 0, 0)]);
  raster.put(1, 0, 0, new Uint8Array(CHUNK * CHUNK));
  assert.equal(raster.stale.size, 0);
});

test('a change of the server is applied whatever is there', () => {
  const raster = loaded();
  raster.paint([[0, 0, 2]], 7);
  raster.apply(changeOf({ '2': [[0, 0, 1]], '0': [[0, 1, 2]] }));
  assert.deepEqual([raster.valueAt(0, 0), raster.valueAt(0, 1)], [2, 0]);
});
