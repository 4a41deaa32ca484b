/** The scene as pictures that the server makes of three bands. */

import TileLayer from 'ol/layer/Tile';
import type Projection from 'ol/proj/Projection';
import ImageTile from 'ol/source/ImageTile';
import TileGrid from 'ol/tilegrid/TileGrid';
import * as api from './api';
import { attempt, type AppStore } from './appState';
import { throttled } from './dom';
import { coarserIsNearer, resolutions, sceneExtent } from './projection';

/** The pictures at all levels, and below them, of a large scene, the coarsest one alone, which comes first. */
export function makeSceneLayers(store: AppStore, projection: Projection): TileLayer<ImageTile>[] {
  const { levels, preview } = store.get().scene;
  const fine = makeLayer(store, projection, resolutions(levels));
  if (!preview) return [fine];
  const coarse = makeLayer(store, projection, resolutions(levels).slice(0, 1));
  const show = (): void => {
    fine.setVisible(true);
  };
  fine.setVisible(false);
  coarse.getSource()!.once('tileloadend', show);
  coarse.getSource()!.once('tileloaderror', show);
  return [coarse, fine];
}

/** Show the sentence that the server answers instead of a picture. */
const sayWhy = throttled(5000, (store: AppStore, address: string) => {
  void attempt(store, () => api.sceneTile(address));
});

function makeLayer(store: AppStore, projection: Projection, sizes: number[]): TileLayer<ImageTile> {
  const { scene } = store.get();
  const extent = sceneExtent(scene);
  const source = new ImageTile({
    projection,
    tileGrid: new TileGrid({ extent, origin: [0, 0], resolutions: sizes, tileSize: scene.tile_size }),
    zDirection: coarserIsNearer,
    interpolate: false,
    transition: 0,
    wrapX: false,
  });
  let shown = ''; // address of the tiles
  let hasFailed = false; // some of them may have
  const addressOf = (z: number, x: number, y: number): string =>
    shown.replace('{k}', String(scene.levels - 1 - z)).replace('{x}', String(x)).replace('{y}', String(y));
  source.on('tileloaderror', ({ tile }) => {
    const [z, x, y] = tile.getTileCoord() as [number, number, number];
    if (store.get().connected) sayWhy(store, addressOf(z, x, y));
  });
  store.watch(['bands', 'stretch', 'scene', 'connected'], ({ bands, stretch, scene: { overviews }, connected }) => {
    const address = api.sceneTiles(bands, stretch, overviews >= 1);
    hasFailed ||= !connected;
    if (!connected || (address === shown && !hasFailed)) return;
    shown = address;
    hasFailed = false;
    source.setUrl((z, x, y) => addressOf(z, x, y)); // old tiles stay until the new ones are there
  });
  return new TileLayer({ source, extent, cacheSize: 512 });
}
