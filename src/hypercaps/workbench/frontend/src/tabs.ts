/** Panels that share one place, one shown at a time. */

import { el } from './dom';

export function makeTabs(label: string, panels: readonly { name: string; element: HTMLElement }[]): HTMLElement {
  const tabs = panels.map(({ name }, i) => el('button', { role: 'tab', id: `tab-${i}`, 'aria-controls': `panel-${i}` }, name));
  const boxes = panels.map(({ element }, i) => el('div', { role: 'tabpanel', id: `panel-${i}`, 'aria-labelledby': `tab-${i}`, tabindex: 0 }, element));
  const choose = (chosen: number): void => {
    tabs.forEach((tab, i) => {
      tab.setAttribute('aria-selected', String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      boxes[i]!.hidden = i !== chosen;
    });
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener('click', () => {
      choose(i);
    });
    tab.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const next = (i + step + tabs.length) % tabs.length;
      choose(next);
      tabs[next]!.focus();
    });
  });
  choose(0);
  return el('section', { class: 'panel tabs', 'aria-label': label }, el('div', { role: 'tablist', 'aria-label': label }, ...tabs), ...boxes);
}
