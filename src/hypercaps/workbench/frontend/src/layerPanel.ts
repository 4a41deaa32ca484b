/** What is drawn over the scene; every slider works on tiles that are here, without a request. */

import type { AppStore, Shown } from './appState';
import { el, percent } from './dom';

type Slider = 'opacity' | 'labelOpacity' | 'minConfidence' | 'minFamiliarity';

export function makeLayerPanel(store: AppStore): HTMLElement {
  const slider = (field: Slider, name: string, title: string): HTMLElement => {
    const output = el('output', {});
    const input = el('input', { type: 'range', min: 0, max: 100, step: 1, title, 'aria-label': name, oninput: () => {
      store.set({ [field]: Number(input.value) / 100 });
    } });
    store.watch([field], (state) => {
      input.value = String(Math.round(state[field] * 100));
      output.textContent = percent(state[field], 0);
    });
    return el('label', { class: 'slider' }, el('span', {}, name), input, output);
  };
  const overlay = el('input', { type: 'checkbox', onchange: () => {
    store.set({ overlay: overlay.checked });
  } });
  const shown = el('select', { onchange: () => {
    store.set({ shown: shown.value as Shown });
  } }, el('option', { value: 'classes' }, 'Classes'), el('option', { value: 'confidence' }, 'Confidence'), el('option', { value: 'familiarity' }, 'Familiarity'));
  const legend = el('div', { class: 'ramp' }, el('span', {}, '0 %'), el('span', { class: 'scale', 'aria-hidden': 'true' }), el('span', {}, '100 %'));
  store.watch(['overlay', 'shown'], (state) => {
    overlay.checked = state.overlay;
    shown.value = state.shown;
    legend.hidden = state.shown === 'classes';
  });
  return el('div', { class: 'layers' },
    el('label', { class: 'check' }, overlay, 'Map and labels over the scene ', el('kbd', {}, 'O')),
    el('label', { class: 'slider' }, el('span', {}, 'Map shows'), shown),
    legend,
    slider('opacity', 'Map', 'Opacity of the map'),
    slider('labelOpacity', 'Labels', 'Opacity of the labels'),
    slider('minConfidence', 'Confidence at least', 'Less confident pixels are left transparent'),
    slider('minFamiliarity', 'Familiarity at least', 'Ground that resembles no label is left transparent'));
}
