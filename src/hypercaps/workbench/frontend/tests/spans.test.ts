import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundsOf, brushLine, countPixels, disk, fillContour, fillOutline, linePixels, outlineOf, SpanSet, type Position } from '../src/spans';

const SCENE = { rows: 20, cols: 30 };
const at = (row: number, col: number): Position => ({ row, col });

/** Even-odd rule by the definition, for every pixel of the scene. */
function insideByDefinition(outline: Position[], row: number, col: number): boolean {
  let inside = false;
  for (let i = 0; i < outline.length; i++) {
    const a = outline[i]!;
    const b = outline[(i + 1) % outline.length]!;
    const [y, x] = [row + 0.5, col + 0.5];
    if (a.row > y !== b.row > y && x < a.col + ((y - a.row) / (b.row - a.row)) * (b.col - a.col)) inside = !inside;
  }
  return inside;
}

test('a set joins what overlaps and touches, and stays inside the scene', () => {
  const set = new SpanSet(SCENE);
  set.addAll([[3, 5, 8], [3, 10, 12], [3, 8, 10], [1, -4, 2], [2, 28, 99], [-1, 0, 5], [20, 0, 5], [4, 7, 7]]);
  assert.deepEqual(set.toSpans(), [[1, 0, 2], [2, 28, 30], [3, 5, 12]]);
});

test('a brush of one pixel is the pixel under the pointer', () => {
  assert.deepEqual(disk(at(4.9, 7.1), 1), [[4, 7, 8]]);
});

test('brushes are round: as wide as high, symmetric, and about as large as a circle', () => {
  for (const size of [2, 3, 4, 5, 8, 13]) {
    const spans = disk(at(10.2, 10.2), size);
    const widths = spans.map(([, first, end]) => end - first);
    assert.equal(spans.length, size);
    assert.equal(Math.max(...widths), size);
    assert.deepEqual(widths, [...widths].reverse());
    assert.ok(Math.abs(countPixels(spans) - (Math.PI * size * size) / 4) <= size, `size ${size}`);
  }
});

test('a line is connected and has both of its ends', () => {
  for (const [from, to] of [[at(2, 3), at(9, 28)], [at(9, 28), at(2, 3)], [at(0, 5), at(19, 5)], [at(4, 4), at(4, 4)]] as const) {
    const pixels = linePixels(from, to);
    assert.deepEqual([pixels[0], pixels.at(-1)], [from, to]);
    pixels.slice(1).forEach((pixel, i) => {
      const step = Math.max(Math.abs(pixel.row - pixels[i]!.row), Math.abs(pixel.col - pixels[i]!.col));
      assert.equal(step, 1);
    });
  }
});

test('a fast stroke leaves no holes', () => {
  for (const size of [1, 2, 3, 6]) {
    const spans = brushLine(at(2.5, 3.5), at(17.5, 26.5), size, SCENE);
    const rows = new Set(spans.map(([row]) => row));
    for (let row = 3; row < 17; row++) assert.ok(rows.has(row), `size ${size}, row ${row}`);
  }
});

test('an outline holds the pixels whose middle is inside, for convex, concave and crossing outlines', () => {
  const outlines = [
    [at(2, 2), at(2, 12.4), at(9.6, 12.4), at(9.6, 2)],
    [at(1.2, 1.7), at(15.3, 4.1), at(8.8, 14.9), at(17.1, 25.2), at(2.4, 22.6)],
    [at(3.1, 3.2), at(12.7, 20.3), at(3.3, 20.9), at(12.9, 3.7)],
    [at(-5, -5), at(-5, 60), at(60, 60), at(60, -5)],
  ];
  for (const outline of outlines) {
    const set = new Set(fillOutline(outline, SCENE).flatMap(([row, first, end]) => Array.from({ length: end - first }, (_, i) => `${row} ${first + i}`)));
    for (let row = 0; row < SCENE.rows; row++) {
      for (let col = 0; col < SCENE.cols; col++) assert.equal(set.has(`${row} ${col}`), insideByDefinition(outline, row, col), `${row} ${col}`);
    }
  }
});

test('fewer than three corners enclose nothing', () => {
  assert.deepEqual(fillOutline([at(1, 1), at(5, 5)], SCENE), []);
});

test('a contour also holds the pixels it was drawn over', () => {
  assert.deepEqual(fillContour([at(3.5, 4.5)], SCENE), [[3, 4, 5]]);
  assert.deepEqual(fillContour([at(3.5, 4.5), at(3.5, 8.5), at(3.5, 4.5)], SCENE), [[3, 4, 9]]);
});

test('bounds of spans', () => {
  assert.equal(boundsOf([]), null);
  assert.deepEqual(boundsOf([[3, 5, 8], [7, 1, 2]]), { row0: 3, row1: 8, col0: 1, col1: 8 });
});

test('an outline is where a pixel has no neighbour of its own kind', () => {
  const key = (edges: ReturnType<typeof outlineOf>): string[] => edges.map((edge) => Object.values(edge).join(' ')).sort();
  assert.deepEqual(key(outlineOf([[2, 3, 4]])), key([
    { row0: 2, col0: 3, row1: 3, col1: 3 }, { row0: 2, col0: 4, row1: 3, col1: 4 },
    { row0: 2, col0: 3, row1: 2, col1: 4 }, { row0: 3, col0: 3, row1: 3, col1: 4 },
  ]));
  const length = (spans: [number, number, number][]): number =>
    outlineOf(spans).reduce((sum, edge) => sum + Math.abs(edge.row1 - edge.row0) + Math.abs(edge.col1 - edge.col0), 0);
  assert.equal(length([[0, 0, 3], [1, 0, 3]]), 10);
  assert.equal(length([[0, 0, 3], [1, 0, 1], [1, 2, 3], [2, 0, 3]]), 16); // a ring: outside and inside
});
