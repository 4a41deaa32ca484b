/** The bar at the top: which bands are shown and how, whether everything is saved, theme and help. */

import type { AppStore } from './appState';
import { el, icon, replace } from './dom';
import { bandName } from './spectralAxis';
import { bandsShown } from './spectrumPanel';

const STRETCHES = [['2-98', '2–98 %'], ['1-99', '1–99 %'], ['5-95', '5–95 %'], ['0-100', 'Full range']] as const;
const THEME = ['M10 3a7 7 0 1 0 0 14z', 'M10 3a7 7 0 0 1 0 14'];
type Theme = 'light' | 'dark';

/** The theme that the user chose last, or the system's. */
function currentTheme(): Theme {
  const chosen = document.documentElement.dataset['theme'];
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export function makeTopBar(store: AppStore, showHelp: () => void, themeChanged: () => void): HTMLElement {
  const { scene, project } = store.get();
  const bands = el('select', { 'aria-label': 'Bands shown', title: 'Bands shown; or drag R, G and B in the spectrum', onchange: () => {
    store.set({ bands: bands.value });
  } });
  const stretch = el('select', { 'aria-label': 'Stretch', title: 'Which percentiles are black and white', onchange: () => {
    store.set({ stretch: stretch.value });
  } }, ...STRETCHES.map(([value, name]) => el('option', { value }, name)));
  store.watch(['bands', 'stretch'], (state) => {
    const isPreset = scene.presets.some(({ id }) => id === state.bands);
    const own = isPreset ? [] : [el('option', { value: state.bands }, (bandsShown(state) ?? []).map((band) => bandName(scene, band)).join(', '))];
    replace(bands, ...scene.presets.map(({ id, name }) => el('option', { value: id }, name)), ...own);
    bands.value = state.bands;
    stretch.value = state.stretch;
  });
  const saved = el('span', { class: 'saved', role: 'status' });
  store.watch(['queue', 'connected', 'writer'], ({ queue, connected, writer }) => {
    const isLate = queue.offline && queue.waiting > 0;
    saved.className = `saved ${isLate || !connected ? 'bad' : ''}`;
    saved.textContent = isLate ? `Not saved: ${queue.waiting}` : !connected ? 'Server not reached' : !writer ? 'Read-only' : queue.waiting > 0 ? 'Saving …' : 'Saved';
  });
  const theme = el('button', { class: 'tool', 'aria-label': 'Light or dark', title: 'Light or dark', onclick: () => {
    const next = currentTheme() === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset['theme'] = next;
    localStorage.setItem('theme', next);
    themeChanged();
  } }, icon(...THEME));
  const help = el('button', { class: 'tool', 'aria-label': 'Keys (?)', title: 'Keys (?)', onclick: showHelp }, '?');
  return el('header', { class: 'top' },
    el('img', { src: 'static/icon.svg', alt: '', width: 22, height: 22 }), el('h1', {}, 'hypercaps'), el('span', { class: 'scene-name', title: `Project ${project}` }, scene.name),
    el('span', { class: 'space' }), bands, stretch, saved, theme, help);
}
