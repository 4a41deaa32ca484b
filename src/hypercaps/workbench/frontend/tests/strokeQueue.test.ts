import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newUuid, Refused, StrokeQueue, type Entry, type QueueState } from '../src/strokeQueue';

function queueWithLog(): { queue: StrokeQueue; states: QueueState[]; pauses: number[] } {
  const states: QueueState[] = [];
  const pauses: number[] = [];
  const queue = new StrokeQueue((state) => states.push(state), (ms) => { pauses.push(ms); return Promise.resolve(); });
  return { queue, states, pauses };
}

function entry(uuid: string, sent: string[], failures: Error[] = [], refusals: string[] = []): Entry {
  return {
    uuid,
    send() {
      sent.push(uuid);
      const failure = failures.shift();
      return failure ? Promise.reject(failure) : Promise.resolve();
    },
    refused: (reason) => refusals.push(reason),
  };
}

test('strokes are sent in order', async () => {
  const { queue, states } = queueWithLog();
  const sent: string[] = [];
  for (const uuid of ['a', 'b', 'c']) queue.add(entry(uuid, sent));
  await queue.idle();
  assert.deepEqual(sent, ['a', 'b', 'c']);
  assert.deepEqual(states.at(-1), { waiting: 0, offline: false, reason: null });
});

test('without an answer the same stroke is sent again, and later ones wait', async () => {
  const { queue, states, pauses } = queueWithLog();
  const sent: string[] = [];
  queue.add(entry('a', sent, [new TypeError('network'), new TypeError('network')]));
  queue.add(entry('b', sent));
  await queue.idle();
  assert.deepEqual(sent, ['a', 'a', 'a', 'b']);
  assert.deepEqual(pauses, [250, 500]);
  assert.ok(states.some(({ offline, waiting }) => offline && waiting === 2));
  assert.deepEqual(states.at(-1), { waiting: 0, offline: false, reason: null });
});

test('what the server refuses is taken back and the rest goes on', async () => {
  const { queue } = queueWithLog();
  const sent: string[] = [];
  const refusals: string[] = [];
  queue.add(entry('a', sent, [new Refused('This class is locked.', 409)], refusals));
  queue.add(entry('b', sent));
  await queue.idle();
  assert.deepEqual(sent, ['a', 'b']);
  assert.deepEqual(refusals, ['This class is locked.']);
});

test('what the server can not take now waits, and the reason is told', async () => {
  const { queue, states } = queueWithLog();
  const sent: string[] = [];
  const refusals: string[] = [];
  queue.add(entry('a', sent, [new Refused('The disk is full.', 507), new Refused('Open the new address.', 403)], refusals));
  queue.add(entry('b', sent));
  await queue.idle();
  assert.deepEqual(sent, ['a', 'a', 'a', 'b']);
  assert.deepEqual(refusals, []);
  assert.deepEqual(states.flatMap(({ reason }) => reason ?? []), ['The disk is full.', 'Open the new address.']);
  assert.deepEqual(states.at(-1), { waiting: 0, offline: false, reason: null });
});

test('uuids are of version 4 and differ', () => {
  const found = new Set(Array.from({ length: 100 }, newUuid));
  assert.equal(found.size, 100);
  for (const uuid of found) assert.match(uuid, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});
