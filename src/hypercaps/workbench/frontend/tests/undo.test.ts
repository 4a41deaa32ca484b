import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Change } from '../src/labelRaster';
import { LocalHistory } from '../src/undo';

const change = (value: number): Change => new Map([[value, [[0, 0, 1]]]]);

test('undo goes backwards through the parts of a stroke, redo forwards', () => {
  const history = new LocalHistory();
  history.push({ before: [change(1), change(2)], after: [change(3), change(4)] });
  assert.deepEqual(history.undo(), [change(2), change(1)]);
  assert.deepEqual(history.redo(), [change(3), change(4)]);
  assert.deepEqual(history.undo(), [change(2), change(1)]);
});

test('a new step ends what could be redone', () => {
  const history = new LocalHistory();
  history.push({ before: [change(1)], after: [change(2)] });
  history.undo();
  history.push({ before: [change(5)], after: [change(6)] });
  assert.equal(history.redo(), null);
});

test('steps that only the server knows are null and keep the order', () => {
  const history = new LocalHistory();
  history.push({ before: [change(1)], after: [change(2)] });
  history.push(null);
  assert.equal(history.undo(), null);
  assert.deepEqual(history.undo(), [change(1)]);
  assert.equal(history.undo(), null);
  assert.equal(history.redo(), null);
  assert.deepEqual(history.redo(), [change(2)]);
});

test('no more than the limit is kept', () => {
  const history = new LocalHistory(2);
  for (const value of [1, 2, 3]) history.push({ before: [change(value)], after: [] });
  assert.deepEqual([history.undo(), history.undo(), history.undo()], [[change(3)], [change(2)], null]);
});
