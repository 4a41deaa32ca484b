/** The classes: counts, balance, keys, colours; hidden, locked, merged and removed here. */

import * as api from './api';
import { attempt, className, paintingTool, takeLabels, type AppStore } from './appState';
import { arrange, el, grouped, icon, keepingFocus } from './dom';
import type { Labelling } from './labelling';
import { textOn } from './palette';
import type { ClassInfo } from './types';

const EYE = ['M2 10s3-5.5 8-5.5 8 5.5 8 5.5-3 5.5-8 5.5S2 10 2 10z', 'M10 7.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z'];
const EYE_SHUT = ['M2 10s3-5.5 8-5.5 8 5.5 8 5.5-3 5.5-8 5.5S2 10 2 10z', 'M4 17 16 3'];
const LOCK = ['M5 9h10v8H5z', 'M7 9V6.5a3 3 0 0 1 6 0V9'];
const UNLOCK = ['M5 9h10v8H5z', 'M7 9V6a3 3 0 0 1 5.5-1.7'];
const MORE = ['M4 9.2h1.6v1.6H4zM9.2 9.2h1.6v1.6H9.2zM14.4 9.2h1.6v1.6h-1.6z'];

export class ClassPanel {
  readonly element: HTMLElement;
  private readonly list = el('ul', { class: 'classes', 'aria-label': 'Classes' });
  private readonly hint = el('p', { class: 'hint' }, 'Add a class, paint a few pixels of each, then Train.');
  private readonly total = el('span', { class: 'muted small' });
  private readonly addButton: HTMLButtonElement;
  private readonly items = new Map<number, HTMLLIElement>();
  private editing: { id: number; element: HTMLElement } | null = null;
  private lastChange: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
  ) {
    this.addButton = el('button', { class: 'plain', title: 'Add a class (C)', onclick: () => void this.add() }, '+ Add class');
    this.element = el('section', { class: 'panel', 'aria-label': 'Classes' }, el('header', {}, el('h2', {}, 'Classes'), this.total, this.addButton), this.hint, this.list);
    store.watch(['classes', 'selected', 'writer'], () => {
      keepingFocus(this.element, () => {
        this.draw();
      });
    });
  }

  async add(): Promise<void> {
    const answer = await this.change({ action: 'add' });
    const added = answer?.classes.at(-1);
    if (!added) return;
    this.store.set({ selected: added.id, tool: paintingTool(this.store.get().tool) });
    this.edit(added);
    this.element.querySelector<HTMLInputElement>('.editor input')?.select();
  }

  /** Choose the class after or before the chosen one. */
  step(by: number): void {
    const { classes, selected } = this.store.get();
    if (classes.length === 0) return;
    const at = classes.findIndex(({ id }) => id === selected);
    this.store.set({ selected: classes[(at + by + classes.length) % classes.length]!.id });
  }

  /** Ask for a change when those before it are answered: the last name that is typed must be the last to arrive. */
  private async change(change: Record<string, unknown>): Promise<{ classes: ClassInfo[] } | null> {
    const request = this.lastChange.then(() => attempt(this.store, () => api.changeClass(change)));
    this.lastChange = request;
    const answer = await request;
    if (!answer) return null;
    this.labelling.serverStep();
    takeLabels(this.store, answer);
    const { selected, classes } = this.store.get();
    if (!classes.some(({ id }) => id === selected)) this.store.set({ selected: classes[0]?.id ?? null });
    if (change['action'] === 'merge' || change['action'] === 'remove') this.labelling.reload(answer.labels.version);
    else this.labelling.version = Math.max(this.labelling.version, answer.labels.version);
    return answer;
  }

  private draw(): void {
    const { classes, writer, labels } = this.store.get();
    const largest = Math.max(1, ...classes.map(({ count }) => count));
    this.hint.hidden = classes.length > 0;
    this.addButton.disabled = !writer;
    this.total.textContent = classes.length > 0 ? `${grouped(classes.reduce((sum, { count }) => sum + count, 0) || labels.count)} pixels` : '';
    if (!classes.some(({ id }) => id === this.editing?.id)) this.editing = null;
    arrange(this.list, classes.map((one) => this.item(one, largest)));
  }

  /** The entry of a class: its row is made anew, its editor stays in the page while somebody types. */
  private item(one: ClassInfo, largest: number): HTMLElement {
    const item = this.items.get(one.id) ?? el('li');
    this.items.set(one.id, item);
    item.className = `${one.id === this.store.get().selected ? 'chosen' : ''} ${one.hidden ? 'is-hidden' : ''}`;
    arrange(item, [this.row(one, largest), ...(this.editing?.id === one.id ? [this.editing.element] : [])]);
    return item;
  }

  private row(one: ClassInfo, largest: number): HTMLElement {
    const { selected, writer } = this.store.get();
    const swatch = el('span', { class: 'key' }, one.key || '\u00a0');
    swatch.style.background = one.color;
    swatch.style.color = textOn(one.color);
    const bar = el('span', { class: 'bar' });
    bar.style.width = `${(100 * one.count) / largest}%`;
    bar.style.background = one.color;
    const isChosen = one.id === selected;
    const choose = el('button', {
      class: 'choose', 'aria-pressed': isChosen, 'data-focus': `choose${one.id}`,
      onclick: () => {
        this.store.set({ selected: one.id, tool: paintingTool(this.store.get().tool) });
      },
      ondblclick: () => {
        this.edit(one);
      },
    }, swatch, el('span', { class: 'name', title: one.name }, one.name), el('span', { class: 'count' }, grouped(one.count), el('span', { class: 'unseen' }, ' pixels')), el('span', { class: 'balance' }, bar));
    const toggle = (name: 'hide' | 'lock', isOn: boolean, on: string, off: string, drawing: readonly string[]): HTMLElement =>
      el('button', { class: `tiny ${isOn ? 'on' : ''}`, disabled: !writer, 'aria-pressed': isOn, 'data-focus': `${name}${one.id}`,
        'aria-label': `${isOn ? off : on} ${one.name}`, title: isOn ? off : on,
        onclick: () => void this.change({ action: isOn ? { hide: 'show', lock: 'unlock' }[name] : name, id: one.id }) }, icon(...drawing));
    const isEdited = this.editing?.id === one.id;
    return el('div', { class: 'row' }, choose,
      toggle('hide', one.hidden, 'Hide', 'Show', one.hidden ? EYE_SHUT : EYE),
      toggle('lock', one.locked, 'Lock', 'Unlock', one.locked ? LOCK : UNLOCK),
      el('button', { class: 'tiny', disabled: !writer, 'aria-label': `Edit ${one.name}`, title: 'Name, colour, key, merge, remove', 'aria-expanded': isEdited, 'data-focus': `more${one.id}`,
        onclick: () => {
          if (isEdited) this.closeEditor();
          else this.edit(one);
        } }, icon(...MORE)));
  }

  private edit(one: ClassInfo): void {
    if (!this.store.get().writer) return;
    this.editing = { id: one.id, element: this.editor(one) };
    this.draw();
    this.element.querySelector<HTMLInputElement>('.editor input')?.focus();
  }

  private closeEditor(): void {
    const id = this.editing?.id;
    this.editing = null;
    this.draw();
    if (id !== undefined) this.element.querySelector<HTMLElement>(`[data-focus="choose${id}"]`)?.focus();
  }

  private editor(one: ClassInfo): HTMLElement {
    const { id } = one;
    const name = el('input', { type: 'text', autocomplete: 'off', value: one.name, maxlength: 100, 'aria-label': 'Name', 'data-focus': 'name', onchange: () => {
      if (name.value.trim()) void this.change({ action: 'rename', id, name: name.value.trim() });
    } });
    name.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' || event.key === 'Enter') {
        event.preventDefault();
        if (event.key === 'Escape') name.value = className(this.store.get(), id);
        name.blur(); // reports the change
        this.closeEditor();
      }
    });
    const color = el('input', { type: 'color', value: one.color, 'aria-label': 'Colour', 'data-focus': 'color', onchange: () => void this.change({ action: 'recolor', id, color: color.value }) });
    const key = el('select', { 'aria-label': 'Key', 'data-focus': 'key', onchange: () => void this.change({ action: 'key', id, key: key.value }) },
      ...['', '1', '2', '3', '4', '5', '6', '7', '8', '9', '0'].map((digit) => el('option', { value: digit, selected: digit === one.key }, digit || 'no key')));
    const others = this.store.get().classes.filter((other) => other.id !== id);
    const merge = el('select', { 'aria-label': 'Merge into', 'data-focus': 'merge', onchange: () => {
      this.editing = null;
      void this.change({ action: 'merge', id, into: Number(merge.value) });
    } }, el('option', { value: '', selected: true, disabled: true }, 'Merge into …'), ...others.map((other) => el('option', { value: other.id }, other.name)));
    return el('div', { class: 'editor' }, name, color, key, others.length > 0 && merge,
      el('button', { class: 'plain danger', 'data-focus': 'remove', onclick: () => void this.change({ action: 'remove', id }) }, 'Remove'));
  }
}
