/** Every training with its labels, score and map: shown again, restored, compared. */

import * as api from './api';
import { attempt, className, notify, takeLabels, type AppStore } from './appState';
import { el, figure, grouped, percent, replace } from './dom';
import type { Labelling } from './labelling';
import type { TrainingRecord } from './types';
import { duration, methodName } from './trainPanel';

function accuracyOf({ score }: TrainingRecord): string {
  const value = score?.oa?.value;
  return value === null || value === undefined ? 'OA unknown' : `OA ${figure(value)}`;
}

const MOST_PAIRS = 12;

function timeOf({ time }: TrainingRecord): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : date.toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' });
}

export class HistoryPanel {
  readonly element = el('div', { class: 'history' });
  private readonly list = el('ol', {});
  private readonly comparison = el('div', { class: 'comparison' });

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
  ) {
    replace(this.element, this.comparison, this.list);
    store.watch(['trainings', 'current', 'comparing', 'writer'], () => {
      this.draw();
    });
    store.watch(['comparing', 'classes'], () => {
      this.drawComparison();
    });
  }

  private draw(): void {
    const { trainings, current, writer, options } = this.store.get();
    if (trainings.length === 0) {
      replace(this.list, el('li', { class: 'muted' }, 'Every training is kept here, with its labels, score and map.'));
      return;
    }
    const newest = [...trainings].sort((a, b) => b.id.localeCompare(a.id));
    replace(this.list, ...newest.map((one) => {
      const isShown = one.id === current;
      const button = (name: string, title: string, run: () => void, disabled = false): HTMLElement => el('button', { class: 'plain', title, disabled, 'aria-label': `${name} ${one.id}`, onclick: run }, name);
      return el('li', { class: isShown ? 'chosen' : '' },
        el('div', { class: 'what' }, el('strong', {}, one.id), ` ${timeOf(one)} `, isShown ? el('span', { class: 'tag' }, 'shown') : null),
        el('div', { class: 'small muted' }, [methodName(options, one.method), `${grouped(one.labels.count)} labels`, one.seconds === null ? null : duration(one.seconds), accuracyOf(one), one.complete ? null : 'map incomplete'].filter((part) => part !== null).join(' · ')),
        el('div', { class: 'buttons' },
          button('Show', 'Show its map', () => void attempt(this.store, () => api.showTraining(one.id)), isShown),
          button('Compare', 'Compare its map with the one that is shown', () => void this.compare(one.id), isShown || current === null),
          button('Restore', 'Labels and map as they were; this can be undone', () => void this.restore(one.id), !writer)));
    }));
  }

  private async restore(id: string): Promise<void> {
    const answer = await attempt(this.store, () => api.restoreTraining(id)); // which map is shown now is told by an event
    if (!answer) return;
    takeLabels(this.store, answer);
    this.labelling.reload(answer.labels.version);
    notify(this.store, 'info', `Labels and map are as they were at ${id}. Ctrl+Z takes it back.`);
  }

  private async compare(from: string): Promise<void> {
    const to = this.store.get().current;
    if (to === null) return;
    this.store.set({ comparing: { from, to, share: 0.5, result: null }, overlay: true, highlight: null });
    const result = await attempt(this.store, () => api.compare(from, to));
    const { comparing } = this.store.get();
    if (result && comparing?.from === from) this.store.set({ comparing: { ...comparing, result } });
  }

  private drawComparison(): void {
    const state = this.store.get();
    const { comparing } = state;
    this.comparison.hidden = comparing === null;
    if (!comparing) return;
    const { from, to, result } = comparing;
    replace(this.comparison,
      el('div', { class: 'what' }, el('strong', {}, `${from} | ${to}`), ' ', result ? `${grouped(result.changed)} pixels differ (${percent(result.share)})` : 'comparing …',
        el('button', { class: 'plain', onclick: () => {
          this.store.set({ comparing: null, highlight: null });
        } }, 'End')),
      result && el('ul', {}, ...result.pairs.slice(0, MOST_PAIRS).map((pair) => el('li', {}, el('button', { class: 'plain', onclick: () => void this.showChanged(pair.from, pair.to) },
        `${className(state, pair.from)} → ${className(state, pair.to)}`), el('span', { class: 'muted' }, ` ${grouped(pair.pixels)}`)))));
  }

  private async showChanged(from: number, to: number): Promise<void> {
    const { comparing } = this.store.get();
    if (!comparing) return;
    const answer = await attempt(this.store, () => api.changedSpans(comparing.from, comparing.to, from, to));
    const state = this.store.get();
    if (answer) this.store.set({ highlight: { spans: answer.spans, text: `${className(state, from)} became ${className(state, to)}` } });
  }
}
