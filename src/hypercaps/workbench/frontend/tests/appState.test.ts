import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asSentence, paintingTool } from '../src/appState';

test('a message begins with a capital letter, the name of a file stays as it is', () => {
  assert.equal(asSentence('port 8050 is taken'), 'Port 8050 is taken');
  assert.equal(asSentence('row 3, column 5 is outside of the scene'), 'Row 3, column 5 is outside of the scene');
  for (const text of ['fields.tif has only 2,000 bytes', 'images: of 224 bands, 6 are left out', 'jasperRidge2_R198: no wavelengths', "'a.md' is no label file"]) {
    assert.equal(asSentence(text), text);
  }
});

test('a class that is chosen while the map is moved or explained is painted by the brush', () => {
  assert.equal(paintingTool('pan'), 'brush');
  assert.equal(paintingTool('explain'), 'brush');
  assert.equal(paintingTool('wand'), 'wand');
});
