import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coarserIsNearer, groundDecimals, isInside, levelFor, referenceName, resolutions, sceneExtent, toGround, toMap, toPosition, visibleRect } from '../src/projection';

const SIZE = { rows: 100, cols: 200 };

test('rows count downwards, y upwards', () => {
  assert.deepEqual(toMap({ row: 3.5, col: 7.5 }), [7.5, -3.5]);
  assert.deepEqual(toPosition(toMap({ row: 3.5, col: 7.5 })), { row: 3.5, col: 7.5 });
  assert.deepEqual(sceneExtent(SIZE), [0, -100, 200, 0]);
});

test('the affine matrix is that of rasterio, also for rotated grids', () => {
  assert.deepEqual(toGround({ row: 2, col: 10 }, [30, 0, 500000, 0, -30, 4600000]), [500300, 4599940]);
  assert.deepEqual(toGround({ row: 2, col: 10 }, [20, 5, 100, -5, -20, 900]), [310, 810]);
});

test('decimals tell neighbouring pixels apart', () => {
  assert.equal(groundDecimals([30, 0, 0, 0, -30, 0]), 0);
  assert.equal(groundDecimals([0.5, 0, 0, 0, -0.5, 0]), 2);
  assert.equal(groundDecimals([0.00027, 0, 0, 0, -0.00027, 0]), 5);
});

test('the visible part is cut to the scene', () => {
  assert.deepEqual(visibleRect([10.2, -50.5, 20.1, -40.9], SIZE), { row0: 40, row1: 51, col0: 10, col1: 21 });
  assert.deepEqual(visibleRect([-50, -500, 900, 20], SIZE), { row0: 0, row1: 100, col0: 0, col1: 200 });
  assert.equal(visibleRect([300, -50, 400, -40], SIZE), null);
  assert.ok(isInside({ row: 99.9, col: 0 }, SIZE));
  assert.ok(!isInside({ row: 100, col: 0 }, SIZE));
});

test('levels are at least as fine as the screen', () => {
  assert.deepEqual([0.1, 1, 1.9, 2, 3.9, 4, 1000].map((resolution) => levelFor(resolution, 4)), [0, 0, 0, 1, 1, 2, 3]);
  assert.deepEqual(resolutions(3), [4, 2, 1]);
});

test('reference systems have short names', () => {
  assert.equal(referenceName('EPSG:4326'), 'EPSG:4326');
  assert.equal(referenceName('PROJCS["WGS 84 / UTM zone 33N",GEOGCS["WGS 84",AUTHORITY["EPSG","4326"]],AUTHORITY["EPSG","32633"]]'), 'EPSG:32633');
  assert.equal(referenceName('PROJCRS["own grid",BASEGEOGCRS["WGS 84",ID["EPSG",4326]],CS[Cartesian,2]]'), 'own grid');
});

test('between two resolutions the one of the smaller ratio is nearer', () => {
  assert.ok(coarserIsNearer(2.9, 4, 2) > 0);
  assert.ok(coarserIsNearer(2.8, 4, 2) < 0);
});
