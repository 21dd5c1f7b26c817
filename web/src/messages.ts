/** Messages between a page and the worker that runs its network. */

import type { Provider } from "./network.js";
import type { ValidationReport } from "./validation.js";
import type { Planes } from "./tiling.js";

/** A call with its arguments. */
export type Call =
  | {
      readonly kind: "open";
      readonly file: Uint8Array;
      readonly references: Uint8Array | null;
      readonly runtime: string;
      readonly provider: Provider;
    }
  | { readonly kind: "restore"; readonly image: Planes; readonly overlap?: number | undefined }
  | { readonly kind: "validate" };

/** To the worker: a call with its number, or the end of one. */
export type Request = { readonly id: number; readonly call: Call | "cancel" };

/** Facts of an opened network. */
export interface Description {
  readonly architecture: string;
  readonly scale: number;
  readonly tile: readonly [number, number];
  readonly provider: Provider;
  readonly warnings: readonly string[];
  readonly report: ValidationReport | null;
  readonly references: number;
}

export type Value = Description | Planes | ValidationReport;

/** From the worker: the progress of a call, its result, or its error. */
export type Answer =
  | {
      readonly id: number;
      readonly kind: "progress";
      readonly done: number;
      readonly total: number;
    }
  | { readonly id: number; readonly kind: "value"; readonly value: Value }
  | {
      readonly id: number;
      readonly kind: "error";
      readonly name: string;
      readonly message: string;
    };
