/** What lies over the map: tool bar, cards for suggestions, comparisons and highlights, the read-out, notices. */

import { attempt, className, dismiss, type AppState, type AppStore } from './appState';
import { el, grouped, icon, percent, replace } from './dom';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import { textOn } from './palette';
import { groundDecimals, referenceName, toGround } from './projection';
import { bandName, shortNumber } from './spectralAxis';
import { bandsShown } from './spectrumPanel';
import type { Suggesting } from './suggesting';
import { TOOLS } from './tools';

const UNDO = ['M4 8h8a4.5 4.5 0 0 1 0 9H8', 'M7 4.5 3.5 8 7 11.5'];
const REDO = ['M16 8H8a4.5 4.5 0 0 0 0 9h4', 'M13 4.5 16.5 8 13 11.5'];
const FIT = ['M3 7V3h4M13 3h4v4M17 13v4h-4M7 17H3v-4'];

export function makeToolBar(store: AppStore, labelling: Labelling, view: MapView, resize: (change: number) => void): HTMLElement {
  const buttons = TOOLS.map((tool) => {
    const button = el('button', { class: 'tool', 'aria-label': `${tool.name} (${tool.key})`, title: `${tool.name} (${tool.key}): ${tool.help}`, onclick: () => {
      store.set({ tool: tool.id });
    } }, icon(...tool.icon));
    return { id: tool.id, button };
  });
  const size = el('output', { class: 'size', 'aria-label': 'Size' });
  const smaller = el('button', { class: 'tool half', 'aria-label': 'Smaller ([)', title: 'Smaller ([)', onclick: () => {
    resize(-1);
  } }, '−');
  const larger = el('button', { class: 'tool half', 'aria-label': 'Larger (])', title: 'Larger (])', onclick: () => {
    resize(1);
  } }, '+');
  const sizes = el('div', { class: 'sizes' }, smaller, size, larger);
  const undo = el('button', { class: 'tool', onclick: () => {
    labelling.undo();
  } }, icon(...UNDO));
  const redo = el('button', { class: 'tool', onclick: () => {
    labelling.redo();
  } }, icon(...REDO));
  const fit = el('button', { class: 'tool', 'aria-label': 'Whole scene (Home)', title: 'Whole scene (Home)', onclick: () => {
    view.fit();
  } }, icon(...FIT));
  store.watch(['tool', 'writer'], ({ tool, writer }) => {
    for (const { id, button } of buttons) {
      button.setAttribute('aria-pressed', String(id === tool));
      button.disabled = !writer && id !== 'pan' && id !== 'explain';
    }
  });
  store.watch(['tool', 'brush', 'tolerance'], ({ tool, brush, tolerance }) => {
    const hasSize = ['brush', 'eraser', 'line', 'wand'].includes(tool);
    sizes.hidden = !hasSize;
    size.textContent = tool === 'wand' ? shortNumber(tolerance) : String(brush);
    size.title = tool === 'wand' ? 'Tolerance (spectral angle)' : 'Pixels across';
  });
  store.watch(['labels', 'writer', 'queue'], ({ labels, writer }) => {
    for (const [button, name, keys, step] of [[undo, 'Undo', 'Ctrl+Z', labels.undo], [redo, 'Redo', 'Ctrl+Shift+Z', labels.redo]] as const) {
      button.disabled = step === null || !writer;
      const title = `${name}${step ? ` ${step.toLowerCase()}` : ''} (${keys})`;
      button.title = title;
      button.setAttribute('aria-label', title);
    }
  });
  return el('div', { class: 'tools', role: 'toolbar', 'aria-label': 'Tools', 'aria-orientation': 'vertical' },
    ...buttons.map(({ button }) => button), sizes, undo, redo, fit);
}

/** Cards at the top of the map. */
export function makeCards(store: AppStore, suggesting: Suggesting): HTMLElement {
  const suggestion = el('div', { class: 'card suggestion', role: 'region', 'aria-label': 'Suggestion' });
  const highlight = el('div', { class: 'card' });
  const readOnly = el('div', { class: 'card warn' }, 'Another tab or browser is working on this project: here it can only be viewed.');
  const lost = el('div', { class: 'card warn' }, 'The server does not answer: is hypercaps serve still running? What you paint is kept in this page, and saved when it answers again.');
  const old = el('div', { class: 'card old' });
  store.watch(['writer', 'connected'], ({ writer, connected }) => {
    readOnly.hidden = writer;
    lost.hidden = connected || !writer;
  });
  store.watch(['map', 'stale'], ({ map, stale }) => {
    const isOld = stale !== null && map !== null && (map.done ?? 1) < 1;
    old.hidden = !isOld;
    if (isOld) old.textContent = `Faint: the older map ${stale.id}, until ${map.id} is there (${percent(map.done, 0)}).`;
  });
  store.watch(['highlight'], (state) => {
    highlight.hidden = state.highlight === null;
    if (state.highlight) replace(highlight, el('span', { class: 'mark', 'aria-hidden': 'true' }), el('span', {}, state.highlight.text), el('button', { class: 'plain', 'aria-label': 'Stop highlighting', onclick: () => {
      store.set({ highlight: null });
    } }, '×'));
  });
  store.watch(['suggesting', 'classes', 'writer'], (state) => {
    drawSuggestion(suggestion, state, store, suggesting);
  });
  return el('div', { class: 'cards' }, lost, readOnly, old, highlight, suggestion);
}

function drawSuggestion(card: HTMLElement, state: Readonly<AppState>, store: AppStore, suggesting: Suggesting): void {
  const points = state.suggesting?.points ?? [];
  const point = points[state.suggesting?.index ?? 0];
  card.hidden = point === undefined;
  if (!point) return;
  const guesses = [point.first, point.second].filter((guess) => guess !== null);
  const ids = guesses.map(({ id }) => id);
  const ordered = [...ids, ...state.classes.map(({ id }) => id).filter((id) => !ids.includes(id))];
  replace(card,
    el('p', {}, el('strong', {}, `Suggestion ${state.suggesting!.index + 1} of ${points.length}. `), 'What is it? The model\u2019s guesses come first.'),
    el('div', { class: 'buttons' }, ...ordered.map((id) => {
      const one = state.classes.find((other) => other.id === id);
      if (!one) return null;
      const key = el('span', { class: 'key' }, one.key || '\u00a0');
      key.style.background = one.color;
      key.style.color = textOn(one.color);
      return el('button', { class: 'plain', disabled: !state.writer, onclick: () => void attempt(store, () => suggesting.label(id)) }, key, el('span', { class: 'name', title: one.name }, one.name), id === point.first.id && el('span', { class: 'muted' }, percent(point.first.confidence, 0)));
    })),
    el('div', { class: 'buttons small' },
      el('button', { class: 'plain', onclick: () => void suggesting.reject() }, "Can't tell ", el('kbd', {}, 'X')),
      el('button', { class: 'plain', onclick: () => void suggesting.skip() }, 'Skip ', el('kbd', {}, 'Space')),
      el('button', { class: 'plain', onclick: () => suggesting.end() }, 'End ', el('kbd', {}, 'Esc'))));
}

/** The line that is dragged between two maps. */
export function makeSwipe(store: AppStore): HTMLElement {
  const line = el('div', { class: 'swipe', role: 'slider', tabindex: 0, 'aria-label': 'Line between the two maps', 'aria-valuemin': 0, 'aria-valuemax': 100 }, el('span', { 'aria-hidden': 'true' }, '⇔'));
  const names = [el('b', { class: 'left' }), el('b', { class: 'right' })] as const;
  line.append(...names);
  const move = (share: number): void => {
    const { comparing } = store.get();
    if (comparing) store.set({ comparing: { ...comparing, share: Math.max(0.02, Math.min(0.98, share)) } });
  };
  line.addEventListener('pointerdown', (event) => {
    event.preventDefault();
    event.stopPropagation();
    line.setPointerCapture(event.pointerId);
  });
  line.addEventListener('pointermove', (event) => {
    const box = line.parentElement!.getBoundingClientRect();
    if (line.hasPointerCapture(event.pointerId)) move((event.clientX - box.left) / box.width);
  });
  line.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move(store.get().comparing!.share + step);
  });
  store.watch(['comparing'], ({ comparing }) => {
    line.hidden = comparing === null;
    if (!comparing) return;
    line.style.left = `${comparing.share * 100}%`;
    names[0].textContent = comparing.from;
    names[1].textContent = comparing.to;
    line.setAttribute('aria-valuenow', String(Math.round(comparing.share * 100)));
  });
  return line;
}

/** Where the cursor is, what the picture's bands say there, and what labels and map say. */
export function makeReadOut(store: AppStore, labelling: Labelling, view: MapView): HTMLElement {
  const place = el('span', {});
  const values = el('span', { class: 'muted' });
  const says = el('span', {});
  const label = (state: Readonly<AppState>, row: number, col: number): string => {
    const value = labelling.raster.valueAt(row, col);
    const mapped = view.classMap.valueAt(row, col);
    const parts = [value ? `label ${className(state, value)}` : null, mapped ? `map ${className(state, mapped.id)} ${percent(mapped.confidence, 0)}${mapped.isOld ? ' (old)' : ''}` : null];
    return parts.filter((part) => part !== null).join(' · ');
  };
  store.watch(['cursor', 'spectrum', 'bands', 'labels', 'labelChunks', 'map'], (state) => {
    const { cursor, scene, spectrum } = state;
    if (!cursor) {
      replace(place, `${scene.name} · ${grouped(scene.rows)} × ${grouped(scene.cols)} × ${scene.bands}`);
      replace(values, scene.overviews < 1 ? `overviews ${percent(scene.overviews, 0)}` : '');
      replace(says);
      return;
    }
    const ground = scene.transform && toGround({ row: cursor.row + 0.5, col: cursor.col + 0.5 }, scene.transform);
    const digits = scene.transform ? groundDecimals(scene.transform) : 0;
    replace(place, `row ${cursor.row}, col ${cursor.col}${ground ? ` · ${ground.map((value) => value.toFixed(digits)).join(', ')} ${scene.crs ? referenceName(scene.crs) : ''}` : ''}`);
    const bands = bandsShown(state);
    const at = spectrum && spectrum.pixel.row === cursor.row && spectrum.pixel.col === cursor.col ? spectrum.values : undefined;
    replace(values, bands && at ? bands.map((band) => `${bandName(scene, band)}: ${shortNumber(at[band]!)}`).join('   ') : at === null ? 'no data' : '');
    replace(says, label(state, cursor.row, cursor.col));
  });
  return el('div', { class: 'readout' }, place, values, says);
}

export function makeNotices(store: AppStore): HTMLElement {
  const box = el('div', { class: 'notices', role: 'status', 'aria-live': 'polite' });
  store.watch(['notices'], ({ notices }) => {
    replace(box, ...notices.map(({ level, text, number }) => el('div', { class: `notice ${level}` }, el('span', {}, text), el('button', { class: 'plain', 'aria-label': 'Close', onclick: () => {
      dismiss(store, number);
    } }, '×'))));
  });
  return box;
}
