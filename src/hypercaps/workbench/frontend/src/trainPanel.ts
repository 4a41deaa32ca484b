/** Training: start, progress, cancel, and the choices that need not be made. */

import * as api from './api';
import { attempt, type AppStore } from './appState';
import { el, percent, replace } from './dom';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import type { Suggesting } from './suggesting';
import type { Choice, Options, Training } from './types';

type Chosen = 'method' | 'recipe' | 'split';

const CHOICES: readonly { field: Chosen; list: 'methods' | 'recipes' | 'splits'; name: string }[] = [
  { field: 'method', list: 'methods', name: 'Method' },
  { field: 'recipe', list: 'recipes', name: 'Recipe' },
  { field: 'split', list: 'splits', name: 'Held-out pixels' },
];

export function duration(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export class TrainPanel {
  readonly element: HTMLElement;
  private readonly button: HTMLButtonElement;
  private readonly suggest: HTMLButtonElement;
  private readonly auto: HTMLInputElement;
  private readonly progress = el('div', { class: 'progress', role: 'status' });
  private readonly choices = el('div', { class: 'choices' });

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
    private readonly view: MapView,
    suggesting: Suggesting,
  ) {
    this.button = el('button', { class: 'primary', title: 'Train and map (Ctrl+Enter)', onclick: () => void this.train() }, 'Train');
    this.suggest = el('button', { class: 'plain', title: 'Go to the next pixel that is worth a label (N)', onclick: () => void suggesting.next() }, 'Suggest');
    this.auto = el('input', { type: 'checkbox', onchange: () => void this.choose({ auto: this.auto.checked }) });
    this.element = el('section', { class: 'panel train', 'aria-label': 'Training' },
      el('div', { class: 'buttons' }, this.button, this.suggest,
        el('label', { class: 'check', title: 'Train 2 seconds after the last stroke' }, this.auto, 'Automatic'),
        el('details', { class: 'options' }, el('summary', {}, 'Options'), this.choices)),
      this.progress);
    store.watch(['training', 'map', 'classes', 'writer', 'current', 'queue'], () => {
      this.draw();
    });
    store.watch(['options', 'writer'], ({ options, writer }) => {
      this.auto.checked = options.chosen.auto;
      this.auto.disabled = !writer;
      this.drawChoices(options, writer);
    });
  }

  async train(): Promise<void> {
    if (!this.canTrain()) return;
    await this.labelling.queue.idle(); // the last strokes count
    const answer = await attempt(this.store, () => api.train(this.view.visible()));
    if (answer && !this.store.get().training) this.store.set({ training: waitingTraining(answer.id) });
  }

  private hasLabels(): boolean {
    return this.store.get().classes.filter(({ count }) => count > 0).length >= 2;
  }

  private canTrain(): boolean {
    return this.store.get().writer && this.hasLabels();
  }

  /** The server tells all pages what is chosen now: another method has other recipes. */
  private async choose(chosen: Partial<Options['chosen']>): Promise<void> {
    if (await attempt(this.store, () => api.setOptions(chosen))) return;
    const { options } = this.store.get();
    this.store.set({ options: { ...options } }); // shows what is still chosen
  }

  private draw(): void {
    const { training, map, current } = this.store.get();
    this.button.disabled = !this.canTrain();
    this.suggest.disabled = current === null && map === null;
    const isMapping = map !== null && map.done !== undefined && map.done < 1;
    if (training) replace(this.progress, ...this.running(training));
    else if (isMapping) replace(this.progress, this.bar(map.done ?? 0), el('span', { class: 'small muted' }, `Map ${percent(map.done, 0)}`));
    else replace(this.progress, this.hasLabels() ? null : el('span', { class: 'small muted' }, 'Training needs labelled pixels of two classes.'));
  }

  private running(training: Training): HTMLElement[] {
    const { state, stage, epoch, epochs, validation, seconds_left: left } = training;
    const parts = [
      stage ?? { waiting: 'Waiting', running: 'Training', mapping: 'Mapping', scoring: 'Scoring', exporting: 'Writing' }[state],
      epoch !== null && epochs !== null && state === 'running' ? `epoch ${epoch} of ${epochs}` : null,
      validation !== null ? `validation ${percent(validation)}` : null,
      left !== null ? `${duration(left)} left` : null,
    ].filter((part) => part !== null);
    const share = training.done ?? (epoch !== null && epochs ? epoch / epochs : null);
    return [
      this.bar(share),
      el('button', { class: 'plain', onclick: () => void attempt(this.store, api.cancel) }, 'Cancel'),
      el('span', { class: 'small' }, parts.join(' · ')),
    ];
  }

  private bar(share: number | null): HTMLElement {
    return el('progress', { 'aria-label': 'Progress', max: 1, ...(share === null ? {} : { value: share }) });
  }

  private drawChoices(options: Options, writer: boolean): void {
    replace(this.choices, ...CHOICES.filter(({ list }) => options[list].length > 0).map(({ field, list, name }) => {
      const select = el('select', { disabled: !writer, onchange: () => void this.choose({ [field]: select.value }) },
        ...options[list].map(asChoice).map((one) => el('option', { value: one.id, selected: one.id === options.chosen[field] }, one.name)));
      return el('label', {}, name, select);
    }));
  }
}

/** The name of a method as the list shows it. */
export function methodName({ methods }: Options, id: string): string {
  return methods.map(asChoice).find((one) => one.id === id)?.name ?? id;
}

function asChoice(choice: string | Choice): Choice {
  return typeof choice === 'string' ? { id: choice, name: choice } : choice;
}

function waitingTraining(id: string): Training {
  return { id, state: 'waiting', stage: null, done: null, epoch: null, epochs: null, validation: null, seconds_left: null, auto: false };
}
