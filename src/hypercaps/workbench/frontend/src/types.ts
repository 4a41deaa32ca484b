/** What the server sends: docs/workbench-api.md. */

import type { Affine } from './projection';
import type { Span } from './spans';

export interface Preset {
  id: string;
  name: string;
  bands?: [number, number, number];
}

export interface Scene {
  name: string;
  rows: number;
  cols: number;
  bands: number;
  wavelengths: number[] | null;
  wavelength_unit: string | null;
  good: boolean[];
  /** Bands after which others are missing: the line of a spectrum is broken there. */
  gaps?: number[];
  transform: Affine | null;
  crs: string | null;
  value_unit: string | null;
  tile_size: number;
  levels: number;
  overviews: number;
  /** The coarsest picture is there soon: the page shows it until the finer ones are. */
  preview: boolean;
  presets: Preset[];
}

export interface ClassInfo {
  id: number;
  name: string;
  color: string;
  key: string;
  hidden: boolean;
  locked: boolean;
  count: number;
}

export interface LabelsInfo {
  version: number;
  undo: string | null;
  redo: string | null;
  count: number;
}

export interface Training {
  id: string;
  state: 'waiting' | 'running' | 'mapping' | 'scoring' | 'exporting';
  stage: string | null; // a sentence
  done: number | null; // 0 to 1, of the stage
  epoch: number | null;
  epochs: number | null;
  validation: number | null;
  seconds_left: number | null;
  auto: boolean;
}

export interface Choice {
  id: string;
  name: string;
}

export interface Options {
  methods: (string | Choice)[];
  recipes: (string | Choice)[];
  splits: (string | Choice)[];
  chosen: { method: string | null; recipe: string | null; split: string | null; auto: boolean };
}

/** In percent. */
export interface Estimate {
  value: number | null;
  low: number | null;
  high: number | null;
}

/** Accuracies in percent. */
export interface ClassScore {
  id: number;
  f1: number | null;
  users: number | null;
  producers: number | null;
  tested: number;
}

export interface Score {
  split: string;
  leakage: number | null;
  test_pixels: number;
  oa: Estimate | null;
  aa: Estimate | null;
  kappa: Estimate | null;
  notes?: string[];
  classes: ClassScore[] | null; // null: left out of the list of trainings
  confusion: { ids: number[]; counts: number[][] } | null;
  reliability?: unknown;
}

export interface TrainingRecord {
  id: string;
  time: string;
  method: string;
  recipe: string;
  split: string;
  labels: { version: number; count: number };
  seconds: number | null;
  score: Score | null;
  complete: boolean;
}

export interface MapInfo {
  id: string;
  revision: number;
  done?: number;
}

export interface Message {
  level: 'info' | 'warning' | 'error';
  text: string;
}

export interface ServerState {
  version: string;
  server: string; // another one after a restart
  project: string;
  writer: boolean;
  scene: Scene;
  classes: ClassInfo[];
  labels: LabelsInfo;
  training: Training | null;
  options: Options;
  current: string | null;
  map: MapInfo | null;
  stale: MapInfo | null;
  trainings: TrainingRecord[];
  messages: Message[];
}

export interface LabelsEvent {
  version: number;
  spans: Record<string, Span[]>;
  origin: string | null;
}

export interface MapEvent {
  id: string;
  windows: [number, number, number, number][];
  done: number;
  revision: number;
}

export interface StrokeAnswer {
  version: number;
  undo: string | null;
  redo: string | null;
  counts: Record<string, number>;
  nodata?: number;
  classes?: ClassInfo[];
}

export interface UndoAnswer extends StrokeAnswer {
  spans: Record<string, Span[]>;
}

export interface ClassesAnswer {
  classes: ClassInfo[];
  labels: LabelsInfo;
}

export interface Guess {
  id: number;
  confidence: number;
}

export interface Suggestion {
  row: number;
  col: number;
  first: Guess;
  second: Pick<Guess, 'id'> | null;
}

export interface Explanation {
  class: number;
  bands: (number | null)[];
  confidence: number;
}

export interface ClassSpectrum {
  mean: (number | null)[];
  std: (number | null)[];
  count: number;
}

export interface Doubtful {
  row: number;
  col: number;
  label: number;
  predicted: number;
  confidence: number;
}

export interface Comparison {
  changed: number;
  share: number;
  pairs: { from: number; to: number; pixels: number }[];
}

export interface Exported {
  folder: string;
  command: string;
  files: string[];
}
