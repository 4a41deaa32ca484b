/** The scene as pictures that the server makes of three bands. */

import TileLayer from 'ol/layer/Tile';
import type Projection from 'ol/proj/Projection';
import ImageTile from 'ol/source/ImageTile';
import TileGrid from 'ol/tilegrid/TileGrid';
import * as api from './api';
import type { AppStore } from './appState';
import { resolutions, sceneExtent } from './projection';

export function makeSceneLayer(store: AppStore, projection: Projection): TileLayer<ImageTile> {
  const { scene } = store.get();
  const extent = sceneExtent(scene);
  const source = new ImageTile({
    projection,
    tileGrid: new TileGrid({ extent, origin: [0, 0], resolutions: resolutions(scene.levels), tileSize: scene.tile_size }),
    interpolate: false,
    transition: 0,
    wrapX: false,
  });
  const layer = new TileLayer({ source, extent, preload: 1, cacheSize: 512 });
  store.watch(['bands', 'stretch'], ({ bands, stretch }) => {
    const address = api.sceneTiles(bands, stretch);
    // With a new key the old tiles stay until the new ones are there.
    source.setUrl((z, x, y) => address.replace('{k}', String(scene.levels - 1 - z)).replace('{x}', String(x)).replace('{y}', String(y)));
  });
  return layer;
}
