/** What is drawn over the scene; every slider works on tiles that are here, without a request. */

import type { AppState, AppStore, Shown } from './appState';
import { el, percent } from './dom';

type Slider = 'labelOpacity' | 'minConfidence' | 'minFamiliarity';

export function makeLayerPanel(store: AppStore): HTMLElement {
  const slider = (name: string, title: string, fields: readonly (keyof AppState)[], read: (state: Readonly<AppState>) => number, write: (value: number) => Partial<AppState>): HTMLElement => {
    const output = el('output', {});
    const input = el('input', { type: 'range', min: 0, max: 100, step: 1, title, 'aria-label': name, oninput: () => {
      store.set(write(Number(input.value) / 100));
    } });
    store.watch(fields, (state) => {
      input.value = String(Math.round(read(state) * 100));
      output.textContent = percent(read(state), 0);
    });
    return el('label', { class: 'slider' }, el('span', {}, name), input, output);
  };
  const simple = (field: Slider, name: string, title: string): HTMLElement => slider(name, title, [field], (state) => state[field], (value) => ({ [field]: value }));
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
    slider('Map opacity', 'Of what the map shows: classes and the two scales each have their own', ['opacity', 'shown'], ({ opacity, shown: now }) => opacity[now], (value) => ({ opacity: { ...store.get().opacity, [store.get().shown]: value } })),
    simple('labelOpacity', 'Label opacity', 'Of the labels that were painted'),
    simple('minConfidence', 'Confidence at least', 'Less confident pixels are left transparent'),
    simple('minFamiliarity', 'Familiarity at least', 'Ground that resembles no label is left transparent'));
}
