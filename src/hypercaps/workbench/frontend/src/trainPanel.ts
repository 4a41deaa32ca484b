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
  private readonly bar = el('progress', { 'aria-label': 'Progress', max: 1 });
  private readonly cancel: HTMLButtonElement;
  private readonly told = el('span', { class: 'small' });
  private readonly progress: HTMLElement;
  private readonly choices = el('div', { class: 'choices' });
  private lastChoice: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
    private readonly view: MapView,
    suggesting: Suggesting,
  ) {
    this.button = el('button', { class: 'primary', title: 'Train and map (Ctrl+Enter)', onclick: () => void this.train() }, 'Train');
    this.suggest = el('button', { class: 'plain', title: 'Go to the next pixel that is worth a label (N)', onclick: () => void suggesting.next() }, 'Suggest');
    this.auto = el('input', { type: 'checkbox', onchange: () => void this.choose({ auto: this.auto.checked }) });
    this.cancel = el('button', { class: 'plain', onclick: () => void attempt(store, api.cancel) }, 'Cancel');
    this.progress = el('div', { class: 'progress', role: 'status' }, this.bar, this.cancel, this.told);
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
    await Promise.all([this.labelling.queue.idle(), this.lastChoice]); // the last strokes and choices count
    await attempt(this.store, () => api.train(this.view.visible()));
  }

  private hasLabels(): boolean {
    return this.store.get().classes.filter(({ count }) => count > 0).length >= 2;
  }

  private canTrain(): boolean {
    return this.store.get().writer && this.hasLabels();
  }

  /** Choose after what was chosen before. The server tells all pages what it is now: another method has other recipes. */
  private async choose(chosen: Partial<Options['chosen']>): Promise<void> {
    const request = this.lastChoice.then(() => attempt(this.store, () => api.setOptions(chosen)));
    this.lastChoice = request;
    if (await request) return;
    const { options } = this.store.get();
    this.store.set({ options: { ...options } }); // shows what is still chosen
  }

  private draw(): void {
    const { training, map, current } = this.store.get();
    this.button.disabled = !this.canTrain();
    this.suggest.disabled = current === null && map === null;
    const isMapping = map !== null && map.done !== undefined && map.done < 1;
    // The elements stay: a click on one that is made anew between press and release would be lost.
    this.cancel.hidden = training === null;
    this.bar.hidden = training === null && !isMapping;
    this.told.classList.toggle('muted', training === null);
    if (training) this.showRunning(training);
    else if (isMapping) this.show(map.done ?? 0, `Map ${percent(map.done, 0)}`);
    else this.show(null, this.hasLabels() ? '' : 'Training needs labelled pixels of two classes.');
  }

  private showRunning(training: Training): void {
    const { state, stage, epoch, epochs, validation, seconds_left: left } = training;
    const parts = [
      stage ?? { waiting: 'Waiting', running: 'Training', mapping: 'Mapping', scoring: 'Scoring', exporting: 'Writing' }[state],
      epoch !== null && epochs !== null && state === 'running' ? `epoch ${epoch} of ${epochs}` : null,
      validation !== null ? `validation ${percent(validation)}` : null,
      left !== null ? `${duration(left)} left` : null,
    ].filter((part) => part !== null);
    const share = training.done ?? (epoch !== null && epochs ? epoch / epochs : null);
    this.show(share, parts.join(' · '));
  }

  private show(share: number | null, text: string): void {
    if (share === null) this.bar.removeAttribute('value');
    else this.bar.value = share;
    this.told.textContent = text;
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
