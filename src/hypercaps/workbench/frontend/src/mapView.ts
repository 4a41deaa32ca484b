/** The map: scene, class map, labels, and a canvas for tools above them. */

import OlMap, { type FrameState } from 'ol/Map';
import View from 'ol/View';
import DragPan from 'ol/interaction/DragPan';
import MouseWheelZoom from 'ol/interaction/MouseWheelZoom';
import PinchZoom from 'ol/interaction/PinchZoom';
import type Interaction from 'ol/interaction/Interaction';
import Projection from 'ol/proj/Projection';
import type { AppStore } from './appState';
import { ClassMap } from './classMap';
import { frameOf, type Frame } from './frame';
import { makeLabelLayer } from './labelLayer';
import type { Labelling } from './labelling';
import { faded, lookupTable } from './palette';
import { sceneExtent, toMap, visibleRect } from './projection';
import { makeSceneLayers } from './sceneLayer';
import type { Position, Rect } from './spans';
import type { Drawing } from './toolCanvas';

/** Padding in CSS pixels around the scene when the whole is shown. */
const MARGIN = 24;

export class MapView {
  readonly map: OlMap;
  readonly classMap: ClassMap;
  readonly otherMap: ClassMap; // the left one while two are compared
  private readonly canvas = document.createElement('canvas');
  private readonly painters: ((drawing: Drawing) => void)[] = [];
  private frame: Frame | null = null;
  private isDrawPending = false;

  constructor(
    private readonly store: AppStore,
    labelling: Labelling,
    private readonly target: HTMLElement,
  ) {
    const { scene } = store.get();
    const projection = new Projection({ code: 'pixels', units: 'pixels', extent: sceneExtent(scene) });
    this.classMap = new ClassMap(scene);
    this.otherMap = new ClassMap(scene);
    this.map = new OlMap({
      target,
      controls: [],
      interactions: [],
      layers: [...makeSceneLayers(store, projection), this.classMap.layer, this.otherMap.layer, makeLabelLayer(store, labelling)],
      view: new View({
        projection,
        center: [scene.cols / 2, -scene.rows / 2],
        resolution: 1,
        minResolution: 1 / 64,
        maxResolution: Math.max(1, (4 * Math.max(scene.rows, scene.cols)) / 256),
        extent: sceneExtent(scene),
        constrainOnlyCenter: true,
        smoothExtentConstraint: false,
        enableRotation: false,
      }),
    });
    this.canvas.className = 'tool-canvas';
    this.canvas.setAttribute('aria-hidden', 'true');
    target.appendChild(this.canvas);
    this.map.on('postrender', ({ frameState }) => {
      if (frameState) this.follow(frameState);
    });
    this.fit();
    this.watchMaps();
  }

  /** Ways to move the map; `grabs` says whether the pointer moves it, rather than using a tool. */
  addMoving(grabs: (event: PointerEvent) => boolean, wheelZooms: (event: WheelEvent) => boolean): void {
    const isPointer = (event: UIEvent): event is PointerEvent => event instanceof PointerEvent;
    this.map.addInteraction(new DragPan({ condition: ({ originalEvent }) => isPointer(originalEvent) && grabs(originalEvent) }));
    this.map.addInteraction(new PinchZoom());
    this.map.addInteraction(new MouseWheelZoom({ condition: ({ originalEvent }) => originalEvent instanceof WheelEvent && wheelZooms(originalEvent) }));
  }

  addInteraction(interaction: Interaction): void {
    this.map.addInteraction(interaction);
  }

  /** Draw over the map in every frame, and whenever `redraw` is called. */
  addPainter(painter: (drawing: Drawing) => void): void {
    this.painters.push(painter);
  }

  redraw(): void {
    if (this.isDrawPending) return;
    this.isDrawPending = true;
    requestAnimationFrame(() => {
      this.isDrawPending = false;
      this.draw();
    });
  }

  /** Show the whole scene. */
  fit(): void {
    this.map.getView().cancelAnimations(); // a flight under way would go on, and end elsewhere
    const margin = Math.min(this.target.clientWidth, this.target.clientHeight) > 20 * MARGIN ? MARGIN : 4;
    this.map.getView().fit(sceneExtent(this.store.get().scene), { padding: [margin, margin, margin, margin] });
  }

  zoom(factor: number): void {
    this.map.getView().animate({ resolution: this.map.getView().getResolution()! / factor, duration: 120 });
  }

  /** Move by a share of the view. */
  pan(down: number, right: number): void {
    const [x, y] = this.map.getView().getCenter()! as [number, number];
    const [width, height] = this.map.getSize()! as [number, number];
    const resolution = this.map.getView().getResolution()!;
    this.map.getView().animate({ center: [x + right * width * resolution, y - down * height * resolution], duration: 80 });
  }

  /** Move to a pixel, near enough to see it. */
  flyTo(pixel: Position): void {
    const view = this.map.getView();
    const resolution = Math.min(view.getResolution()!, 1 / 6);
    view.cancelAnimations();
    view.animate({ center: toMap({ row: pixel.row + 0.5, col: pixel.col + 0.5 }), resolution, duration: 250 });
  }

  /** Move only if a pixel is out of view. */
  reveal(pixel: Position): void {
    const rect = this.visible();
    const isIn = pixel.row >= rect.row0 && pixel.row < rect.row1 && pixel.col >= rect.col0 && pixel.col < rect.col1;
    if (isIn) return;
    this.map.getView().cancelAnimations();
    this.map.getView().setCenter(toMap({ row: pixel.row + 0.5, col: pixel.col + 0.5 }));
  }

  visible(): Rect {
    const { scene } = this.store.get();
    const whole = { row0: 0, row1: scene.rows, col0: 0, col1: scene.cols };
    return visibleRect(this.map.getView().calculateExtent(), scene) ?? whole;
  }

  private follow(state: FrameState): void {
    this.frame = frameOf(state);
    if (this.canvas.width !== this.frame.width || this.canvas.height !== this.frame.height) {
      this.canvas.width = this.frame.width;
      this.canvas.height = this.frame.height;
    }
    this.draw();
  }

  private draw(): void {
    if (!this.frame) return;
    const context = this.canvas.getContext('2d')!;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const painter of this.painters) painter({ context, frame: this.frame });
    this.target.dataset['frames'] = String(Number(this.target.dataset['frames'] ?? 0) + 1);
  }

  private watchMaps(): void {
    const { store, classMap, otherMap } = this;
    store.watch(['map', 'stale', 'comparing'], ({ map, stale, comparing }) => {
      const isComparing = comparing !== null;
      classMap.show(isComparing ? { id: comparing.to, revision: this.revisionOf(comparing.to) } : map, isComparing ? null : stale);
      otherMap.show(isComparing ? { id: comparing.from, revision: this.revisionOf(comparing.from) } : null, null);
      classMap.layer.setClip(isComparing ? { side: 'right', share: comparing.share } : null);
      otherMap.layer.setClip(isComparing ? { side: 'left', share: comparing.share } : null);
    });
    store.watch(['overlay', 'opacity', 'shown'], ({ overlay, opacity, shown }) => {
      for (const { layer } of [classMap, otherMap]) {
        layer.setVisible(overlay);
        layer.setOpacity(opacity[shown]);
      }
    });
    store.watch(['classes', 'minConfidence', 'minFamiliarity', 'shown'], ({ classes, minConfidence, minFamiliarity, shown }) => {
      const limits = { minConfidence: Math.round(minConfidence * 255), minFamiliarity: Math.round(minFamiliarity * 255) };
      const style = { table: lookupTable(classes), oldTable: faded(classes), shown, ...limits };
      classMap.setStyle(style);
      otherMap.setStyle(style);
    });
  }

  /** The newest revision of a training's map; a complete one has no other. */
  private revisionOf(id: string): number {
    const { map, stale } = this.store.get();
    return [map, stale].find((one) => one?.id === id)?.revision ?? 0;
  }
}
