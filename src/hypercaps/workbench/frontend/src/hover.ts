/** The spectrum under the cursor: one request at a time, always for the newest pixel. */

import * as api from './api';
import type { AppStore, Pixel } from './appState';

export function followCursor(store: AppStore): void {
  let isAsking = false;
  let wanted: Pixel | null = null;
  const ask = async (): Promise<void> => {
    if (isAsking) return;
    isAsking = true;
    while (wanted) {
      const pixel: Pixel = wanted;
      wanted = null;
      try {
        store.set({ spectrum: { pixel, values: await api.spectrum(pixel.row, pixel.col) } });
      } catch {
        // the next pixel is asked for anyway; a lost server is told by the stream of events
      }
    }
    isAsking = false;
  };
  store.watch(['cursor'], ({ cursor }) => {
    if (!cursor) return;
    wanted = cursor;
    void ask();
  });
}
