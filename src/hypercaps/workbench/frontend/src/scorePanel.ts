/** Scores on held-out pixels, and the confusion matrix whose cells show where the errors are. */

import * as api from './api';
import { attempt, classColor, className, type AppState, type AppStore } from './appState';
import { el, figure as inPercent, grouped, percent, replace } from './dom';
import type { MapView } from './mapView';
import { countPixels } from './spans';
import type { Doubtful, Estimate, Score, TrainingRecord } from './types';

const MOST_DOUBTFUL = 100;

function currentTraining({ current, trainings }: Pick<AppState, 'current' | 'trainings'>): TrainingRecord | null {
  return trainings.find(({ id }) => id === current) ?? null;
}

function interval({ low, high }: Estimate): string {
  return low === null || high === null ? '' : `${low.toFixed(1)}–${high.toFixed(1)}`;
}

/** Why a training, if there is one, has no score. */
export function whyNone(found: Pick<TrainingRecord, 'split'> | null, isUnderWay: boolean): string {
  if (!found) return 'Scores on held-out pixels appear here after the first training.';
  if (found.split === 'none') return 'No score: nothing was held out. That takes a class with two separate areas, and a choice of held-out pixels under Options.';
  return isUnderWay ? 'The score on held-out ground is being computed.' : 'No score: the scoring was cancelled. Train again to get one.';
}

export class ScorePanel {
  readonly element = el('div', { class: 'scores' });
  private doubtful: Doubtful[] | null = null;
  private doubtfulOf: string | null = null;

  constructor(
    private readonly store: AppStore,
    private readonly view: MapView,
  ) {
    let drawn = '';
    store.watch(['current', 'trainings', 'classes', 'training'], ({ current, trainings, classes, training }) => {
      const now = JSON.stringify([current, trainings, classes.map(({ id, name, color }) => [id, name, color]), training?.id]);
      if (now !== drawn) this.draw(); // not with every stroke: the user may be on a cell of the matrix
      drawn = now;
    });
  }

  private draw(): void {
    const { training } = this.store.get();
    const found = currentTraining(this.store.get());
    if (!found?.score) {
      replace(this.element, el('p', { class: 'muted' }, whyNone(found, training?.id === found?.id)));
      return;
    }
    const { id, score } = found;
    if (this.doubtfulOf !== id) this.doubtful = null;
    const basis = [this.basis(score), ...(score.notes ?? [])].map((text) => el('p', {}, text));
    replace(this.element, this.figures(score), el('div', { class: 'basis small muted' }, ...basis), this.classTable(id, score), this.matrix(id, score), this.contradicted(id));
  }

  private figures({ oa, aa, kappa }: Score): HTMLElement {
    const figure = (name: string, full: string, estimate: Estimate | null): HTMLElement =>
      el('div', { class: 'figure' }, el('dt', {}, el('abbr', { title: full }, name)),
        el('dd', {}, estimate === null || estimate.value === null ? 'unknown' : inPercent(estimate.value)),
        el('dd', { class: 'small muted', title: '95 % interval' }, estimate === null ? '' : interval(estimate), el('span', { class: 'unseen' }, ' (95 % interval)')));
    return el('dl', { class: 'figures' }, figure('OA', 'overall accuracy', oa), figure('AA', 'average accuracy of the classes', aa), figure('κ', "Cohen's kappa", kappa));
  }

  private basis({ split, leakage, test_pixels: tested }: Score): string {
    const leak = leakage === null ? '' : ` ${percent(leakage, 0)} of them have a training pixel in their patch.`;
    return `95 % intervals, from ${grouped(tested)} held-out pixels. ${split}${/[.!?]$/.test(split) ? '' : '.'}${leak}`;
  }

  private classTable(id: string, score: Score): HTMLElement {
    const state = this.store.get();
    const rows = (score.classes ?? []).map((one) => {
      const swatch = el('span', { class: 'swatch' });
      swatch.style.background = classColor(state, one.id);
      const name = className(state, one.id);
      const cells = one.tested === 0
        ? [el('td', { colspan: 3, class: 'muted' }, 'not tested')]
        : [inPercent(one.f1, 0), inPercent(one.users, 0), inPercent(one.producers, 0)].map((text) => el('td', {}, text));
      return el('tr', {}, el('th', { scope: 'row', title: name }, swatch, name), ...cells, el('td', {}, String(one.tested)),
        el('td', {}, one.tested > 0 && el('button', { class: 'plain', disabled: one.producers === 100, title: 'Show its errors on the map', 'aria-label': `Show errors of ${name}`, onclick: () => void this.showErrors(id, one.id, null) }, 'errors')));
    });
    return el('table', { class: 'by-class' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Class'),
      ...[['F1', 'harmonic mean of both accuracies'], ["User's", 'share of pixels mapped as the class that are it'], ["Prod.", "producer's accuracy: share of the class's pixels that are mapped as it"], ['Tested', 'held-out pixels']]
        .map(([name, title]) => el('th', { scope: 'col' }, el('abbr', { title }, name))), el('td', {}))), el('tbody', {}, ...rows));
  }

  private matrix(id: string, { confusion }: Score): HTMLElement | null {
    if (!confusion || confusion.ids.length === 0) return null;
    const state = this.store.get();
    const { ids, counts } = confusion;
    const head = (one: number): HTMLElement => {
      const cell = el('th', { scope: 'col' }, el('span', { class: 'swatch', title: className(state, one), role: 'img', 'aria-label': className(state, one) }));
      (cell.firstChild as HTMLElement).style.background = classColor(state, one);
      return cell;
    };
    const rows = ids.map((truth, i) => {
      const sum = Math.max(1, counts[i]!.reduce((a, b) => a + b, 0));
      return el('tr', {}, head(truth), ...ids.map((predicted, j) => this.cell(id, truth, predicted, counts[i]![j]!, counts[i]![j]! / sum)));
    });
    return el('div', { class: 'matrix-box', role: 'region', tabindex: 0, 'aria-label': 'Confusion matrix' },
      el('h3', {}, 'Confusion', el('span', { class: 'muted small' }, ' rows: label, columns: prediction when held out')),
      el('table', { class: 'matrix' }, el('thead', {}, el('tr', {}, el('td', {}), ...ids.map(head))), el('tbody', {}, ...rows)));
  }

  private cell(id: string, truth: number, predicted: number, count: number, share: number): HTMLElement {
    const state = this.store.get();
    if (count === 0) return el('td', { class: 'none' }, '·');
    const what = `${count} of ${className(state, truth)} predicted as ${className(state, predicted)}`;
    const button = el('button', { 'aria-label': what, title: `${what}: show on the map`, onclick: () => void this.showErrors(id, truth, predicted) }, String(count));
    const cell = el('td', { class: truth === predicted ? 'right' : 'wrong' }, button);
    cell.style.setProperty('--share', `${Math.round(15 + 60 * share)}%`);
    return cell;
  }

  private async showErrors(id: string, truth: number | null, predicted: number | null): Promise<void> {
    const answer = await attempt(this.store, () => api.errors(id, truth, predicted));
    if (!answer) return;
    const state = this.store.get();
    const names = [truth === null ? null : `labelled ${className(state, truth)}`, predicted === null ? null : `predicted as ${className(state, predicted)}`].filter((name) => name !== null);
    const what = truth !== null && predicted === null ? `errors of ${className(state, truth)}` : `held-out pixels ${names.join(', ')}`;
    this.store.set({ highlight: { spans: answer.spans, text: `${grouped(countPixels(answer.spans))} ${what}` }, overlay: true });
  }

  private contradicted(id: string): HTMLElement {
    const box = el('div', { class: 'doubtful' });
    if (!this.doubtful) {
      replace(box, el('button', { class: 'plain', onclick: () => void this.findDoubtful(id) }, 'Labels that the model contradicts'));
      return box;
    }
    const state = this.store.get();
    replace(box, el('h3', {}, this.doubtful.length === 0 ? 'The model contradicts no label' : `${this.doubtful.length} labels that the model contradicts`),
      el('ol', {}, ...this.doubtful.slice(0, MOST_DOUBTFUL).map((one) => el('li', {}, el('button', { class: 'plain', onclick: () => {
        this.store.set({ highlight: { spans: [[one.row, one.col, one.col + 1]], text: `labelled ${className(state, one.label)}, the model says ${className(state, one.predicted)}` } });
        this.view.flyTo(one);
      } }, `${className(state, one.label)} → ${className(state, one.predicted)} (${percent(one.confidence, 0)}), row ${one.row}, col ${one.col}`)))));
    return box;
  }

  private async findDoubtful(id: string): Promise<void> {
    const answer = await attempt(this.store, () => api.doubtful(id));
    if (!answer) return;
    this.doubtful = answer.pixels;
    this.doubtfulOf = id;
    this.draw();
    this.element.querySelector('.doubtful')?.scrollIntoView({ block: 'nearest' });
  }
}
