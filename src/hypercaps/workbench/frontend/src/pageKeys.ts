/** What the keys of the page do. */

import { attempt, paintingTool, type AppStore } from './appState';
import type { ClassPanel } from './classPanel';
import { explain } from './explaining';
import { letter, plain, toolKeys, withControl, type KeyAction } from './keys';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import type { SpectrumPanel } from './spectrumPanel';
import type { Suggesting } from './suggesting';
import type { Tools } from './tools';
import type { TrainPanel } from './trainPanel';

export interface Page {
  readonly store: AppStore;
  readonly labelling: Labelling;
  readonly view: MapView;
  readonly tools: Tools;
  readonly suggesting: Suggesting;
  readonly classPanel: ClassPanel;
  readonly spectrumPanel: SpectrumPanel;
  readonly trainPanel: TrainPanel;
  readonly showHelp: () => void;
}

const ARROWS: Record<string, readonly [down: number, right: number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The arrow keys move the cursor of a tool pixel by pixel, or, while the map is being moved, the map. */
function arrow({ store, view }: Page, event: KeyboardEvent): boolean {
  const step = ARROWS[event.key];
  if (!step) return false;
  const { tool, cursor, scene } = store.get();
  if (tool === 'pan') {
    view.pan(step[0] * 0.2, step[1] * 0.2);
    return true;
  }
  const rect = view.visible();
  const from = cursor ?? { row: Math.floor((rect.row0 + rect.row1) / 2), col: Math.floor((rect.col0 + rect.col1) / 2) };
  const far = event.shiftKey ? 10 : 1;
  const limit = (value: number, end: number): number => Math.max(0, Math.min(end - 1, value));
  const moved = { row: limit(from.row + far * step[0], scene.rows), col: limit(from.col + far * step[1], scene.cols) };
  store.set({ cursor: moved, keyboard: true });
  view.reveal(moved);
  return true;
}

/** A class's key labels the suggestion that is shown, or chooses the class. */
function classKey({ store, suggesting }: Page, event: KeyboardEvent): boolean {
  const found = store.get().classes.find(({ key }) => key !== '' && key === event.key);
  if (!found) return false;
  if (suggesting.current()) void attempt(store, () => suggesting.label(found.id));
  else store.set({ selected: found.id, tool: paintingTool(store.get().tool) });
  return true;
}

function escape({ store, tools, suggesting }: Page): boolean {
  if (tools.cancel()) return true;
  if (suggesting.end()) return true;
  store.set({ highlight: null, explained: null, comparing: null });
  return true;
}

export function pageKeys(page: Page): KeyAction[] {
  const { store, labelling, view, tools, suggesting } = page;
  const action = (group: KeyAction['group'], keys: string, text: string, matches: KeyAction['matches'], run: (event: KeyboardEvent) => unknown): KeyAction =>
    ({ group, keys, text, matches, run: (event) => run(event) !== false });
  const whileSuggesting = (run: () => Promise<void>) => (): boolean => {
    if (!suggesting.current()) return false;
    void run();
    return true;
  };
  return [
    ...toolKeys(store),
    action('Tools', '[ ]', 'Smaller, larger; of the wand: tolerance', (event) => plain(event) && ['[', ']'].includes(event.key), (event) => {
      tools.resize(event.key === ']' ? 1 : -1);
    }),
    action('Labels', '0…9', 'Choose a class by its key', plain, (event) => classKey(page, event)),
    action('Labels', ', .', 'Class before, after', (event) => plain(event) && [',', '.'].includes(event.key), (event) => {
      page.classPanel.step(event.key === '.' ? 1 : -1);
    }),
    action('Labels', 'C', 'Add a class', letter('c'), () => void page.classPanel.add()),
    action('Labels', '← ↑ → ↓', 'Move the cursor a pixel (Shift: ten)', (event) => plain(event) && event.key in ARROWS, (event) => arrow(page, event)),
    action('Labels', 'Enter', 'Use the tool at the cursor; close a polygon', (event) => plain(event) && event.key === 'Enter', () => {
      tools.enter();
    }),
    action('Labels', 'Backspace', 'Take back the last corner', (event) => plain(event) && event.key === 'Backspace', () => tools.backspace()),
    action('Labels', 'Ctrl+Z', 'Undo', withControl('z', false), () => {
      labelling.undo();
    }),
    action('Labels', 'Ctrl+Shift+Z', 'Redo', (event) => withControl('z', true)(event) || withControl('y', false)(event), () => {
      labelling.redo();
    }),
    action('Map', 'O', 'Map and labels on, off', letter('o'), () => {
      store.set({ overlay: !store.get().overlay });
    }),
    action('Map', '+ −', 'Nearer, farther', (event) => plain(event) && ['+', '=', '-'].includes(event.key), (event) => {
      view.zoom(event.key === '-' ? 0.5 : 2);
    }),
    action('Map', 'Home', 'Whole scene', (event) => plain(event) && event.key === 'Home', () => {
      view.fit();
    }),
    action('Map', 'S', 'Pin the spectrum under the cursor', letter('s'), () => void page.spectrumPanel.pin()),
    action('Model', 'Ctrl+Enter', 'Train', (event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter', () => void page.trainPanel.train()),
    action('Model', 'E', 'Explain the class under the cursor', letter('e'), () => void explain(store, store.get().cursor)),
    action('Suggestions', 'N', 'Next suggestion', letter('n'), () => void suggesting.next()),
    action('Suggestions', '0…9', 'Label it and go on', () => false, () => false),
    action('Suggestions', 'X', "Can't tell", letter('x'), whileSuggesting(() => suggesting.reject())),
    action('Suggestions', 'Space', 'Skip', (event) => plain(event) && event.key === ' ', whileSuggesting(() => suggesting.skip())),
    action('Map', 'Esc', 'Give up what is under way', (event) => event.key === 'Escape', () => escape(page)),
    action('Map', '?', 'Keys', (event) => !event.ctrlKey && event.key === '?', () => {
      page.showHelp();
    }),
  ];
}
