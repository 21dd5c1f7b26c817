/** The worker that runs a network: loaded by `WorkerRestorer`. */

import type { Answer, Call, Description, Request, Value } from "./messages.js";
import { FileError } from "./metadata.js";
import type { Network, Provider, Runtime } from "./network.js";
import { type Gpu, open } from "./opening.js";
import { readReferences, type ReferenceCase } from "./references.js";
import { restore } from "./restoring.js";
import type { OnProgress } from "./tiling.js";
import { validate } from "./validation.js";

/** The part of a worker's global object that is used; the page's declarations lack it. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<Request>) => void) | null;
  postMessage(answer: Answer, transfer: Transferable[]): void;
  readonly crossOriginIsolated: boolean;
  readonly navigator: { readonly gpu?: Gpu; readonly hardwareConcurrency: number };
}

const MODULES: Readonly<Record<Provider, string>> = {
  webgpu: "ort.webgpu.min.mjs",
  wasm: "ort.wasm.min.mjs",
};
const MOST_THREADS = 8;

const scope = globalThis as unknown as WorkerScope;
const running = new Map<number, AbortController>();
let network: Network | null = null;
let references: readonly ReferenceCase[] = [];
let last: Promise<void> = Promise.resolve();

scope.onmessage = ({ data: { id, call } }) => {
  if (call === "cancel") {
    running.get(id)?.abort();
    return;
  }
  const controller = new AbortController();
  running.set(id, controller);
  last = last.then(() => answer(id, call, controller)); // a session runs one thing at a time
};

async function answer(id: number, call: Call, controller: AbortController): Promise<void> {
  const onProgress: OnProgress = (done, total) =>
    scope.postMessage({ id, kind: "progress", done, total }, []);
  try {
    const value = await carriedOut(call, controller.signal, onProgress);
    const transfer = "data" in value ? [value.data.buffer as ArrayBuffer] : [];
    scope.postMessage({ id, kind: "value", value }, transfer);
  } catch (error) {
    const { name, message } = error instanceof Error ? error : new Error(String(error));
    scope.postMessage({ id, kind: "error", name, message }, []);
  } finally {
    running.delete(id);
  }
}

async function carriedOut(
  call: Call,
  signal: AbortSignal,
  onProgress: OnProgress,
): Promise<Value> {
  if (call.kind === "open") return opened(call, onProgress);
  if (network === null) throw new FileError("no model file is open");
  if (call.kind === "validate") return validate(network, references, onProgress);
  return restore(network, call.image, { overlap: call.overlap, signal, onProgress });
}

async function opened(
  call: Call & { kind: "open" },
  onProgress: OnProgress,
): Promise<Description> {
  await network?.release();
  network = null;
  references = call.references === null ? [] : await readReferences(call.references);
  const load = (provider: Provider): Promise<Runtime> => loadRuntime(call.runtime, provider);
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

async function loadRuntime(folder: string, provider: Provider): Promise<Runtime> {
  const runtime = (await import(new URL(MODULES[provider], folder).href)) as Runtime;
  runtime.env.wasm.wasmPaths = folder;
  runtime.env.wasm.numThreads = scope.crossOriginIsolated
    ? Math.min(scope.navigator.hardwareConcurrency, MOST_THREADS)
    : 1;
  return runtime;
}
