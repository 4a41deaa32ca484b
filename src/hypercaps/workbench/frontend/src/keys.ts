/** Keys of the page, in one table that the help shows too. */

import type { AppStore } from './appState';
import { TOOLS } from './tools';

export interface KeyAction {
  readonly keys: string; // as shown
  readonly text: string;
  readonly group: 'Tools' | 'Labels' | 'Map' | 'Model' | 'Suggestions';
  readonly matches: (event: KeyboardEvent) => boolean;
  /** Returns false to let the key do what it does otherwise. */
  readonly run: (event: KeyboardEvent) => boolean;
}

export const plain = (event: KeyboardEvent): boolean => !event.ctrlKey && !event.metaKey && !event.altKey;
export const letter = (key: string) => (event: KeyboardEvent): boolean => plain(event) && event.key.toLowerCase() === key.toLowerCase();
export const withControl = (key: string, shift: boolean) => (event: KeyboardEvent): boolean =>
  (event.ctrlKey || event.metaKey) && !event.altKey && event.shiftKey === shift && event.key.toLowerCase() === key.toLowerCase();

/** Keys that choose the tools; E explains at once. */
export function toolKeys(store: AppStore): KeyAction[] {
  return TOOLS.filter(({ id }) => id !== 'explain').map(({ id, key, name }) => ({
    keys: key,
    text: name,
    group: 'Tools',
    matches: letter(key),
    run: () => {
      store.set({ tool: id });
      return true;
    },
  }));
}

/** Whether a key belongs to what has the focus: text being typed, a list being walked through. */
function belongsToFocus(event: KeyboardEvent): boolean {
  const focused = event.target as HTMLElement;
  if (focused.closest('dialog')) return true;
  if (focused instanceof HTMLInputElement) {
    const isText = !['range', 'checkbox', 'color', 'button', 'file'].includes(focused.type);
    const isOwn = ['Enter', ' '].includes(event.key) || event.key.startsWith('Arrow') || event.key === 'Home';
    return (isText && !(event.ctrlKey && event.key === 'Enter')) || isOwn;
  }
  if (focused instanceof HTMLSelectElement || focused instanceof HTMLTextAreaElement) return plain(event);
  const isControl = focused instanceof HTMLButtonElement || focused instanceof HTMLAnchorElement || focused.tagName === 'SUMMARY' || focused.role === 'slider' || focused.role === 'tab';
  return isControl && plain(event) && (['Enter', ' ', 'Home', 'End'].includes(event.key) || event.key.startsWith('Arrow'));
}

export function listenToKeys(actions: readonly KeyAction[]): void {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || belongsToFocus(event)) return;
    for (const action of actions) {
      if (action.matches(event) && action.run(event)) {
        event.preventDefault();
        return;
      }
    }
  });
}
