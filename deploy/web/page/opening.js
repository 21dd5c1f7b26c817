/** Where a network runs in this browser: on WebGPU if that is correct, otherwise on WebAssembly. */

import { FileError } from "./metadata.js";
import { openNetwork } from "./network.js";
import { validate } from "./validation.js";

/** @import { Network, Provider, Runtime } from "./network.js" */
/** @import { ReferenceCase } from "./references.js" */
/** @import { OnProgress } from "./tiling.js" */
/** @import { ValidationReport } from "./validation.js" */

/**
 * A network and where it runs.
 *
 * - `warnings`: sentences for the user; none if everything runs on a GPU.
 * - `report`: result of the comparison with the references; null: WebAssembly is compared on
 *   request.
 *
 * @typedef {Readonly<{
 *   network: Network,
 *   warnings: readonly string[],
 *   report: ValidationReport | null,
 * }>} Opened
 */

/**
 * The used part of WebGPU; TypeScript's own declarations lack it.
 *
 * @typedef {Readonly<{ info: Readonly<{ isFallbackAdapter?: boolean }> }>} Adapter
 * @typedef {{ requestAdapter(): Promise<Adapter | null> }} Gpu
 */

/**
 * Returns the module of onnxruntime-web for a provider.
 *
 * @typedef {(provider: Provider) => Promise<Runtime>} LoadRuntime
 */

/**
 * Open a model file on WebGPU, or on WebAssembly where WebGPU is absent, fails, or computes
 * something else than the references say.
 *
 * @param {LoadRuntime} load
 * @param {Uint8Array} file
 * @param {readonly ReferenceCase[]} references - Of the file; an empty list compares nothing.
 * @param {Gpu | undefined} gpu - `navigator.gpu`.
 * @param {Provider} wanted - `wasm` does not try WebGPU.
 * @param {OnProgress} [onProgress] - Called while WebGPU is compared with the references.
 * @returns {Promise<Opened>}
 * @throws {FileError} The file is none that can be run.
 */
export async function open(load, file, references, gpu, wanted, onProgress) {
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

/**
 * Return the network on WebGPU, or why it does not run there.
 *
 * @param {LoadRuntime} load
 * @param {Uint8Array} file
 * @param {readonly ReferenceCase[]} references
 * @param {Gpu | undefined} gpu
 * @param {OnProgress | undefined} onProgress
 * @returns {Promise<Opened | string>}
 */
async function openOnGpu(load, file, references, gpu, onProgress) {
  if (gpu === undefined) return "this browser has no WebGPU.";
  const adapter = await gpu.requestAdapter().catch(() => null);
  if (adapter === null) return "WebGPU finds no usable GPU.";
  /** @type {Network} */
  let network;
  /** @type {boolean} */
  let whole;
  try {
    [network, whole] = await openOnAdapter(await load("webgpu"), file);
  } catch (error) {
    if (error instanceof FileError) throw error;
    return `WebGPU cannot open the file (${firstLine(error)}).`;
  }
  /** @type {string[]} */
  const warnings = [];
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

/**
 * Return the network, and whether all of it runs on WebGPU.
 *
 * @type {(runtime: Runtime, file: Uint8Array) => Promise<[Network, boolean]>}
 */
async function openOnAdapter(runtime, file) {
  try {
    return [await openNetwork(runtime, file, "webgpu", true), true];
  } catch (error) {
    if (error instanceof FileError) throw error;
    return [await openNetwork(runtime, file, "webgpu"), false];
  }
}

/** @type {(error: unknown) => string} */
function firstLine(error) {
  return String(error).split("\n")[0].slice(0, 200);
}
