/** Files: the run folder of `hypercaps train`, and labels in and out. */

import * as api from './api';
import { attempt, notify, takeLabels, type AppStore } from './appState';
import { el, grouped, replace } from './dom';
import type { Labelling } from './labelling';

const FORMATS = [['gpkg', 'GeoPackage'], ['geojson', 'GeoJSON'], ['tif', 'GeoTIFF'], ['csv', 'CSV'], ['npy', 'NumPy']] as const;

export class FilePanel {
  readonly element: HTMLElement;
  private readonly result = el('div', { class: 'exported', role: 'status' });
  private readonly button: HTMLButtonElement;

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
  ) {
    this.button = el('button', { class: 'primary', onclick: () => void this.exportRun() }, 'Export run');
    const again = (): void => void this.importLabels(file, field);
    const field = el('input', { type: 'text', autocomplete: 'off', placeholder: 'Field of the class, if there are several', 'aria-label': 'Field of the class', onchange: again });
    const file = el('input', { type: 'file', 'aria-label': 'Label file', onchange: again });
    this.element = el('div', { class: 'files' },
      el('h3', {}, 'Map, model and report'),
      el('p', { class: 'small muted' }, 'Writes the folder that hypercaps train makes, and shows the command that gives the same bytes.'),
      this.button, this.result,
      el('h3', {}, 'Save labels'),
      el('div', { class: 'buttons' }, ...FORMATS.map(([format, name]) => el('a', { class: 'plain', href: api.labelsFile(format), download: '' }, name))),
      el('h3', {}, 'Open labels'),
      el('p', { class: 'small muted' }, 'GeoPackage, GeoJSON, shapefile (zip), KML, CSV, GeoTIFF, .mat, .npy'),
      el('div', { class: 'import' }, file, field));
    store.watch(['current', 'writer'], ({ current, writer }) => {
      this.button.disabled = current === null || !writer;
      file.disabled = field.disabled = !writer;
    });
  }

  private async exportRun(): Promise<void> {
    this.button.disabled = true;
    replace(this.result, el('p', { class: 'muted' }, 'Writing …'));
    await this.labelling.queue.idle();
    const { current } = this.store.get();
    const done = await attempt(this.store, () => api.exportRun(current));
    this.button.disabled = false;
    if (!done || current === null) {
      replace(this.result);
      return;
    }
    const command = el('code', {}, done.command);
    replace(this.result,
      el('p', { class: 'small' }, 'Written to ', el('strong', {}, done.folder), ' in the project. The same bytes by:'),
      el('div', { class: 'command' }, command, el('button', { class: 'plain', onclick: () => void this.copy(done.command) }, 'Copy')),
      el('div', { class: 'buttons' }, ...done.files.map((file) => el('a', { class: 'plain', href: api.runFile(current, file), download: file }, file))));
  }

  private async copy(text: string): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      notify(this.store, 'info', 'The command is in the clipboard.');
    } catch {
      notify(this.store, 'warning', 'The browser does not let this page copy: select the command instead.');
    }
  }

  /** Open the chosen file. One that is refused stays chosen, and is tried again with another field. */
  private async importLabels(input: HTMLInputElement, field: HTMLInputElement): Promise<void> {
    const [file] = input.files ?? [];
    if (!file) return;
    const answer = await attempt(this.store, () => api.importLabels(file, field.value.trim()));
    if (!answer) {
      field.focus();
      return;
    }
    input.value = '';
    field.value = '';
    for (const message of answer.messages) notify(this.store, 'warning', typeof message === 'string' ? message : message.text);
    takeLabels(this.store, answer);
    this.store.set({ selected: this.store.get().selected ?? answer.classes[0]?.id ?? null });
    this.labelling.reload(answer.labels.version);
    notify(this.store, 'info', `${grouped(answer.imported)} labelled pixels from ${file.name}.`);
  }
}
