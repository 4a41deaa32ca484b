import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faded, lookupTable, luminance, mapPixel, parseColor, ramp, textOn, toPixel } from '../src/palette';

test('colours become pixels of a canvas', () => {
  assert.deepEqual(parseColor('#d2b030'), [0xd2, 0xb0, 0x30]);
  const bytes = new Uint8Array(new Uint32Array([toPixel([1, 2, 3], 4)]).buffer);
  assert.deepEqual([...bytes], [1, 2, 3, 4]);
});

test('what is not a colour is grey, not a fault', () => {
  assert.deepEqual(parseColor('url(x)'), [128, 128, 128]);
});

test('hidden and unknown classes are transparent', () => {
  const table = lookupTable([{ id: 1, color: '#ff0000', hidden: false }, { id: 2, color: '#00ff00', hidden: true }], 200);
  assert.equal(table[1], toPixel([255, 0, 0], 200));
  assert.deepEqual([table[0], table[2], table[3]], [0, 0, 0]);
});

test('text on a colour has a contrast of at least 4.5', () => {
  for (let i = 0; i < 4096; i++) {
    const color = `#${[i >> 8, (i >> 4) & 15, i & 15].map((part) => (part * 17).toString(16).padStart(2, '0')).join('')}`;
    const [light, dark] = [luminance(color), luminance(textOn(color))].sort((a, b) => b - a) as [number, number];
    assert.ok((light + 0.05) / (dark + 0.05) >= 4.5, color);
  }
});

test('a map is coloured by class, confidence or familiarity; what is below a limit is transparent', () => {
  const classes = [{ id: 7, color: '#102030', hidden: false }];
  const style = { table: lookupTable(classes), oldTable: faded(classes), minConfidence: 0, minFamiliarity: 0, shown: 'classes' as const };
  const data = new Uint8Array([0, 0, 0, 7, 200, 90]); // class, confidence, familiarity of two pixels
  assert.equal(mapPixel(data, 3, style, style.table), toPixel([0x10, 0x20, 0x30], 255));
  assert.equal(mapPixel(data, 3, { ...style, shown: 'confidence' }, style.table), ramp()[200]);
  assert.equal(mapPixel(data, 3, { ...style, shown: 'familiarity' }, style.table), ramp()[90]);
  assert.equal(mapPixel(data, 3, { ...style, minConfidence: 200, minFamiliarity: 90 }, style.table), toPixel([0x10, 0x20, 0x30], 255));
  assert.equal(mapPixel(data, 3, { ...style, minConfidence: 201 }, style.table), 0);
  assert.equal(mapPixel(data, 3, { ...style, minFamiliarity: 91 }, style.table), 0);
  assert.ok(mapPixel(data, 3, style, style.oldTable) >>> 24 < 255);
});
