import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bandName, nearestBand, onAxis, shortNumber, spectralAxis, toCsv } from '../src/spectralAxis';
import type { Scene } from '../src/types';

const SCENE = { bands: 4, wavelengths: [400, 900, 600, 2000], wavelength_unit: 'nm', gaps: [1] } as unknown as Scene;

test('bands are ordered by wavelength, and the line breaks where bands are missing', () => {
  const axis = spectralAxis(SCENE);
  assert.deepEqual(axis.x, [400, 600, 900, 1450, 2000]);
  assert.deepEqual(axis.bands, [0, 2, 1, -1, 3]);
  assert.deepEqual(onAxis(axis, [1, 2, Number.NaN, 4], [true, true, true, true]), [1, null, 2, null, 4]);
  assert.deepEqual(onAxis(axis, [1, 2, 3, 4], [true, true, true, false]), [1, 3, 2, null, null]);
});

test('without wavelengths the axis counts bands', () => {
  const axis = spectralAxis({ bands: 3, wavelengths: null, wavelength_unit: null });
  assert.deepEqual([axis.x, axis.unit], [[0, 1, 2], 'band']);
});

test('the nearest band is a band, not a break', () => {
  assert.equal(nearestBand(spectralAxis(SCENE), 1400), 1);
  assert.equal(nearestBand(spectralAxis(SCENE), 99999), 3);
});

test('names and numbers are short', () => {
  assert.equal(bandName(SCENE, 1), '900 nm');
  assert.equal(bandName({ wavelengths: [0.4556], wavelength_unit: 'µm' }, 0), '0.4556 µm');
  assert.equal(bandName({ wavelengths: null, wavelength_unit: null }, 7), 'band 7');
  assert.deepEqual([1234.567, 0.123456, 0, 1e-9].map(shortNumber), ['1235', '0.1235', '0', '1.00e-9']);
});

test('a table for other programs quotes names and disarms formulas', () => {
  const csv = toCsv(SCENE, [{ name: '=1+1, "x"', values: [1, null, 3, 4] }]);
  assert.deepEqual(csv.split('\r\n').slice(0, 3), ['band,wavelength_nm,"\'=1+1, ""x"""', '0,400,1', '1,900,']);
});
