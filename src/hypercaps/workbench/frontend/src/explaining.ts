/** Which bands spoke for the class of a pixel: asked by a click or a key, drawn in the spectrum. */

import * as api from './api';
import { attempt, notify, type AppStore, type Pixel } from './appState';

let newest = 0;

export async function explain(store: AppStore, pixel: Pixel | null): Promise<void> {
  if (!pixel) return;
  if (store.get().current === null) {
    notify(store, 'info', 'Train first: a class of the map is explained by the model that made it.');
    return;
  }
  const number = ++newest;
  const result = await attempt(store, () => api.explain(pixel.row, pixel.col));
  if (result && number === newest) store.set({ explained: { pixel, result } });
}
