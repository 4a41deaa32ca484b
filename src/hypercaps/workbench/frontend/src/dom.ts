/** Elements made without markup: text is always a text node. */

type Child = Node | string | number | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => void };
type Value = string | number | boolean | null | undefined | ((event: never) => void);
type Attributes = Handlers & Record<string, Value>;

/** An element with attributes (`onclick` and the like are listeners; true and false set or leave out an attribute). */
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener);
    else if (name.startsWith('aria-')) element.setAttribute(name, String(value)); // "false" is a value of its own
    else if (value !== false) element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

export function append(parent: Node, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Give an element these children, in this order. Those that stay are not taken out: an input would lose focus and report what is half typed. */
export function arrange(parent: Element, children: readonly Element[]): void {
  for (const child of [...parent.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, at) => {
    const there = parent.children[at] ?? null;
    if (there !== child) parent.insertBefore(child, there);
  });
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

const SVG = 'http://www.w3.org/2000/svg';

/** A drawing of 20 x 20, from path data; it says nothing to screen readers: its button has a label. */
export function icon(...paths: string[]): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [name, value] of Object.entries({ viewBox: '0 0 20 20', 'aria-hidden': 'true', class: 'icon' })) svg.setAttribute(name, value);
  for (const data of paths) {
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', data);
    svg.appendChild(path);
  }
  return svg;
}

export function percent(share: number | null | undefined, digits = 1): string {
  return share === null || share === undefined || Number.isNaN(share) ? '–' : `${(share * 100).toFixed(digits)} %`;
}

/** A figure that is in percent already. */
export function figure(value: number | null | undefined, digits = 1): string {
  return percent(value === null || value === undefined ? null : value / 100, digits);
}

export function grouped(count: number): string {
  return count.toLocaleString('en').replaceAll(',', '\u202f');
}

/** Call at most once every `ms`, with the newest arguments. */
export function throttled<A extends unknown[]>(ms: number, call: (...values: A) => void): (...values: A) => void {
  let newest: A | null = null;
  let timer: number | null = null;
  const run = (): void => {
    timer = null;
    if (!newest) return;
    const values = newest;
    newest = null;
    call(...values);
    timer = window.setTimeout(run, ms);
  };
  return (...values) => {
    newest = values;
    if (timer === null) run();
  };
}

/** Keep focus where it was when a part of the page is made anew: elements are found again by `data-focus`. */
export function keepingFocus(parent: Element, make: () => void): void {
  const focused = document.activeElement instanceof HTMLElement && parent.contains(document.activeElement) ? document.activeElement.dataset['focus'] : undefined;
  make();
  if (focused !== undefined) parent.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}
