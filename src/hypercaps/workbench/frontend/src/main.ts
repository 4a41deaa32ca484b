/** Builds the page from the server's state. */

import 'ol/ol.css';
import 'uplot/dist/uPlot.min.css';
import '../style.css';
import * as api from './api';
import { initialState, type AppState } from './appState';
import { ClassPanel } from './classPanel';
import { byId, el, throttled } from './dom';
import { FilePanel } from './filePanel';
import { makeHelp } from './help';
import { HistoryPanel } from './historyPanel';
import { followCursor } from './hover';
import { listenToKeys } from './keys';
import { Labelling } from './labelling';
import { makeLayerPanel } from './layerPanel';
import { MapView } from './mapView';
import { pageKeys } from './pageKeys';
import { ScorePanel } from './scorePanel';
import { ServerEvents } from './serverEvents';
import { SpectrumPanel } from './spectrumPanel';
import { makeCards, makeNotices, makeReadOut, makeSwipe, makeToolBar } from './stagePanels';
import { Store } from './store';
import { Suggesting } from './suggesting';
import { makeTabs } from './tabs';
import { Tools } from './tools';
import { makeTopBar } from './topBar';
import { TrainPanel } from './trainPanel';

function applyTheme(): void {
  const theme = localStorage.getItem('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset['theme'] = theme;
}

/** A click leaves the keys to the map; who walks through the page by keys keeps the place. */
function giveKeysBack(map: HTMLElement): void {
  let pressed: EventTarget | null = null;
  document.addEventListener('pointerdown', ({ target }) => {
    pressed = target;
  });
  document.addEventListener('keydown', () => {
    pressed = null;
  });
  const give = ({ target }: Event): void => {
    const part = (target as Element).closest('button, select, summary, input[type=checkbox]');
    const isTyping = document.activeElement instanceof HTMLInputElement && document.activeElement.type === 'text';
    if (part && !isTyping && pressed instanceof Node && part.contains(pressed) && !part.closest('.editor, dialog')) map.focus({ preventScroll: true });
  };
  document.addEventListener('change', give);
  document.addEventListener('click', (event) => {
    if (!(event.target instanceof HTMLSelectElement)) give(event); // a list that opens keeps the keys
  });
}

async function start(): Promise<void> {
  applyTheme();
  const server = await api.state();
  document.title = `${server.scene.name} – hypercaps`;
  const store = new Store<AppState>(initialState(server));
  const labelling = new Labelling(store);
  const target = el('div', { id: 'map', tabindex: 0, role: 'application', 'aria-label': 'Scene, map and labels. Choose a tool, move its cursor with the arrow keys and press Enter.' });
  const stage = el('div', { class: 'stage' }, target);
  const side = el('aside', { class: 'side', 'aria-label': 'Panels' });
  const main = el('main', {}, stage, side);
  byId('page').replaceChildren(main);

  const view = new MapView(store, labelling, target);
  const tools = new Tools(store, labelling, view);
  const suggesting = new Suggesting(store, labelling, view);
  const spectrumPanel = new SpectrumPanel(store);
  const classPanel = new ClassPanel(store, labelling);
  const trainPanel = new TrainPanel(store, labelling, view, suggesting);
  const page = { store, labelling, view, tools, suggesting, classPanel, spectrumPanel, trainPanel, showHelp: () => {
    help.showModal();
  } };
  const keys = pageKeys(page);
  const help = makeHelp(keys);
  listenToKeys(keys);

  main.before(makeTopBar(store, page.showHelp, () => {
    spectrumPanel.rebuild();
  }));
  stage.prepend(makeToolBar(store, labelling, view, (change) => {
    tools.resize(change);
  }));
  target.append(makeSwipe(store));
  stage.append(makeCards(store, suggesting), makeReadOut(store, labelling, view));
  side.append(classPanel.element, spectrumPanel.element, trainPanel.element, makeTabs('Results', [
    { name: 'Scores', element: new ScorePanel(store, view).element },
    { name: 'Layers', element: makeLayerPanel(store) },
    { name: 'History', element: new HistoryPanel(store, labelling).element },
    { name: 'Files', element: new FilePanel(store, labelling).element },
  ]));
  main.after(makeNotices(store), help);
  view.map.updateSize();
  view.fit();

  giveKeysBack(target);
  followCursor(store);
  const tellView = throttled(1000, () => {
    if (store.get().writer) api.setView(view.visible()).catch(() => undefined);
  });
  view.map.on('moveend', () => {
    tellView();
  });
  window.addEventListener('beforeunload', (event) => {
    if (labelling.queue.waiting > 0) event.preventDefault(); // strokes that are not saved would be lost
  });
  const events = new ServerEvents(store, labelling, view);
  events.tell(server.messages);
  events.connect();
  if (location.hash === '#test') Object.assign(window, { workbench: page });
}

start().catch((error: unknown) => {
  byId('page').replaceChildren(el('p', { class: 'fatal', role: 'alert' }, error instanceof TypeError ? 'The server does not answer: is hypercaps serve still running?' : (error as Error).message));
});
