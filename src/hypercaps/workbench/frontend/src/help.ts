/** All keys, in a dialog. */

import { el } from './dom';
import type { KeyAction } from './keys';

export function makeHelp(actions: readonly KeyAction[]): HTMLDialogElement {
  const groups = [...new Set(actions.map(({ group }) => group))];
  const close = el('button', { class: 'plain', 'aria-label': 'Close', onclick: () => {
    dialog.close();
  } }, '×');
  const dialog = el('dialog', { class: 'help', 'aria-label': 'Keys' },
    el('header', {}, el('h2', {}, 'Keys'), close),
    el('div', { class: 'groups' }, ...groups.map((group) => el('section', {}, el('h3', {}, group), el('dl', {},
      ...actions.filter((action) => action.group === group).flatMap(({ keys, text }) => [
        el('dt', {}, ...keys.split(' ').map((key) => el('kbd', {}, key))), el('dd', {}, text)]))))),
    el('p', { class: 'small muted' }, 'Middle button or two fingers move the map while a tool is chosen.'));
  return dialog;
}
