/** Where a network runs in this browser: on WebGPU if that is correct, otherwise on WebAssembly. */

import { FileError } from "./metadata.js";
import { type Network, openNetwork, type Provider, type Runtime } from "./network.js";
import type { ReferenceCase } from "./references.js";
import type { OnProgress } from "./tiling.js";
import { validate, type ValidationReport } from "./validation.js";

/** A network and where it runs. */
export interface Opened {
  readonly network: Network;
  /** Sentences for the user; none if everything runs on a GPU. */
  readonly warnings: readonly string[];
  /** Result of the comparison with the references; null: WebAssembly is compared on request. */
  readonly report: ValidationReport | null;
}

/** The used part of WebGPU; TypeScript's own declarations lack it. */
export interface Gpu {
  requestAdapter(): Promise<{ readonly info: { readonly isFallbackAdapter?: boolean } } | null>;
}

/** Returns the module of onnxruntime-web for a provider. */
export type LoadRuntime = (provider: Provider) => Promise<Runtime>;

/**
 * Open a model file on WebGPU, or on WebAssembly where WebGPU is absent, fails, or computes
 * something else than the references say.
 *
 * @param references - Of the file; an empty list compares nothing.
 * @param gpu - `navigator.gpu`.
 * @param wanted - `wasm` does not try WebGPU.
 * @param onProgress - Called while WebGPU is compared with the references.
 * @throws FileError - The file is none that can be run.
 */
export async function open(
  load: LoadRuntime,
  file: Uint8Array,
  references: readonly ReferenceCase[],
  gpu: Gpu | undefined,
  wanted: Provider,
  onProgress?: OnProgress,
): Promise<Opened> {
  let reason = "WebAssembly was requested.";
  if (wanted === "webgpu") {
    const opened = await openOnGpu(load, file, references, gpu, onProgress);
    if (typeof opened !== "string") return opened;
    reason = opened;
  }
  const runtime = await load("wasm");
  const network = await openNetwork(runtime, file, "wasm");
  const threads = runtime.env.wasm.numThreads ?? 1;
  const warning =
    `Not on the GPU: ${reason} The network runs on the CPU by WebAssembly with ` +
    `${threads === 1 ? "one thread" : `${threads} threads`}, which is much slower.`;
  return { network, warnings: [warning], report: null };
}

/** Return the network on WebGPU, or why it does not run there. */
async function openOnGpu(
  load: LoadRuntime,
  file: Uint8Array,
  references: readonly ReferenceCase[],
  gpu: Gpu | undefined,
  onProgress: OnProgress | undefined,
): Promise<Opened | string> {
  if (gpu === undefined) return "this browser has no WebGPU.";
  const adapter = await gpu.requestAdapter().catch(() => null);
  if (adapter === null) return "WebGPU finds no usable GPU.";
  let network: Network;
  let whole: boolean;
  try {
    [network, whole] = await openOnAdapter(await load("webgpu"), file);
  } catch (error) {
    if (error instanceof FileError) throw error;
    return `WebGPU cannot open the file (${firstLine(error)}).`;
  }
  const warnings: string[] = [];
  if (!whole) warnings.push("WebGPU lacks operators of this file: a part of it runs on the CPU.");
  if (adapter.info.isFallbackAdapter === true) {
    warnings.push("This browser has no GPU and computes WebGPU in software, which is slow.");
  }
  try {
    const report = references.length === 0 ? null : await validate(network, references, onProgress);
    if (report === null) warnings.push("There are no references to compare this GPU with.");
    if (report === null || report.passed) return { network, warnings, report };
    const fault = report.cases.find((each) => each.fault !== null)?.fault ?? "";
    await network.release();
    return `WebGPU does not reproduce the references here: ${fault}.`;
  } catch (error) {
    await network.release();
    if (error instanceof FileError) throw error;
    return `WebGPU fails (${firstLine(error)}).`;
  }
}

/** Return the network, and whether all of it runs on WebGPU. */
async function openOnAdapter(runtime: Runtime, file: Uint8Array): Promise<[Network, boolean]> {
  try {
    return [await openNetwork(runtime, file, "webgpu", true), true];
  } catch (error) {
    if (error instanceof FileError) throw error;
    return [await openNetwork(runtime, file, "webgpu"), false];
  }
}

function firstLine(error: unknown): string {
  return String(error).split("\n")[0].slice(0, 200);
}
