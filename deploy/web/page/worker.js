/** The worker that runs a network, loaded by `WorkerRestorer`, and the messages between the two. */

import { FileError } from "./metadata.js";
import { open } from "./opening.js";
import { readReferences } from "./references.js";
import { restore } from "./restoring.js";
import { validate } from "./validation.js";

/** @import { Network, Provider, Runtime } from "./network.js" */
/** @import { Gpu, LoadRuntime } from "./opening.js" */
/** @import { ReferenceCase } from "./references.js" */
/** @import { OnProgress, Planes } from "./tiling.js" */
/** @import { ValidationReport } from "./validation.js" */

/**
 * A call with its arguments.
 *
 * @typedef {Readonly<{
 *   kind: "open",
 *   file: Uint8Array,
 *   references: Uint8Array | null,
 *   runtime: string,
 *   provider: Provider,
 * }>} OpenCall
 * @typedef {Readonly<{ kind: "restore", image: Planes, overlap?: number | undefined }>} RestoreCall
 * @typedef {OpenCall | RestoreCall | Readonly<{ kind: "validate" }>} Call
 */

/**
 * To the worker: a call with its number, or the end of one.
 *
 * @typedef {Readonly<{ id: number, call: Call | "cancel" }>} Request
 */

/**
 * Facts of an opened network.
 *
 * @typedef {Readonly<{
 *   architecture: string,
 *   scale: number,
 *   tile: readonly [number, number],
 *   provider: Provider,
 *   warnings: readonly string[],
 *   report: ValidationReport | null,
 *   references: number,
 * }>} Description
 */

/**
 * From the worker: the progress of a call, its result, or its error.
 *
 * @typedef {Description | Planes | ValidationReport} Value
 * @typedef {Readonly<{ id: number, kind: "progress", done: number, total: number }>} ProgressAnswer
 * @typedef {Readonly<{ id: number, kind: "value", value: Value }>} ValueAnswer
 * @typedef {Readonly<{ id: number, kind: "error", name: string, message: string }>} ErrorAnswer
 * @typedef {ProgressAnswer | ValueAnswer | ErrorAnswer} Answer
 */

/**
 * The part of a worker's global object that is used; the page's declarations lack it.
 *
 * @typedef {object} WorkerScope
 * @property {((event: MessageEvent<Request>) => void) | null} onmessage
 * @property {(answer: Answer, transfer: Transferable[]) => void} postMessage
 * @property {boolean} crossOriginIsolated
 * @property {Readonly<{ gpu?: Gpu, hardwareConcurrency: number }>} navigator
 */

/** @type {Readonly<Record<Provider, string>>} */
const MODULES = {
  webgpu: "ort.webgpu.min.mjs",
  wasm: "ort.wasm.min.mjs",
};
const MOST_THREADS = 8;

const scope = /** @type {WorkerScope} */ (/** @type {unknown} */ (globalThis));
/** @type {Map<number, AbortController>} */
const running = new Map();
/** @type {Network | null} */
let network = null;
/** @type {readonly ReferenceCase[]} */
let references = [];
/** @type {Promise<void>} */
let last = Promise.resolve();

scope.onmessage = (/** @type {MessageEvent<Request>} */ { data: { id, call } }) => {
  if (call === "cancel") {
    running.get(id)?.abort();
    return;
  }
  const controller = new AbortController();
  running.set(id, controller);
  last = last.then(() => answer(id, call, controller)); // a session runs one thing at a time
};

/** @type {(id: number, call: Call, controller: AbortController) => Promise<void>} */
async function answer(id, call, controller) {
  /** @type {OnProgress} */
  const onProgress = (done, total) => scope.postMessage({ id, kind: "progress", done, total }, []);
  try {
    const value = await carriedOut(call, controller.signal, onProgress);
    const transfer = "data" in value ? [/** @type {ArrayBuffer} */ (value.data.buffer)] : [];
    scope.postMessage({ id, kind: "value", value }, transfer);
  } catch (error) {
    const { name, message } = error instanceof Error ? error : new Error(String(error));
    scope.postMessage({ id, kind: "error", name, message }, []);
  } finally {
    running.delete(id);
  }
}

/** @type {(call: Call, signal: AbortSignal, onProgress: OnProgress) => Promise<Value>} */
async function carriedOut(call, signal, onProgress) {
  if (call.kind === "open") return opened(call, onProgress);
  if (network === null) throw new FileError("no model file is open");
  if (call.kind === "validate") return validate(network, references, onProgress);
  return restore(network, call.image, { overlap: call.overlap, signal, onProgress });
}

/** @type {(call: OpenCall, onProgress: OnProgress) => Promise<Description>} */
async function opened(call, onProgress) {
  await network?.release();
  network = null;
  references = call.references === null ? [] : await readReferences(call.references);
  /** @type {LoadRuntime} */
  const load = (provider) => loadRuntime(call.runtime, provider);
  const { gpu } = scope.navigator;
  const found = await open(load, call.file, references, gpu, call.provider, onProgress);
  network = found.network;
  return {
    architecture: network.facts.architecture,
    scale: network.facts.scale,
    tile: [network.input[1], network.input[2]],
    provider: network.provider,
    warnings: found.warnings,
    report: found.report,
    references: references.length,
  };
}

/** @type {(folder: string, provider: Provider) => Promise<Runtime>} */
async function loadRuntime(folder, provider) {
  /** @type {Runtime} */
  const runtime = await import(new URL(MODULES[provider], folder).href);
  runtime.env.wasm.wasmPaths = folder;
  runtime.env.wasm.numThreads = scope.crossOriginIsolated
    ? Math.min(scope.navigator.hardwareConcurrency, MOST_THREADS)
    : 1;
  return runtime;
}
