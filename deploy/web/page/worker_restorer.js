/** A network in a worker, so that the page responds while it runs. */

/** @import { Provider } from "./network.js" */
/** @import { RestoreOptions } from "./restoring.js" */
/** @import { OnProgress, Planes } from "./tiling.js" */
/** @import { ValidationReport } from "./validation.js" */
/** @import { Answer, Call, Description, ErrorAnswer, Request, Value } from "./worker.js" */

/**
 * What to open, and where.
 *
 * - `references`: the `.npz` file next to the model file; without it a GPU is not checked.
 * - `runtime`: address of the folder with the files of onnxruntime-web.
 * - `provider`: `wasm` does not try WebGPU.
 * - `onProgress`: called while WebGPU is compared with the references.
 *
 * @typedef {Readonly<{
 *   references?: Uint8Array | null,
 *   runtime: string | URL,
 *   provider?: Provider,
 *   onProgress?: OnProgress,
 * }>} OpenOptions
 */

/**
 * A call without its result.
 *
 * @typedef {Readonly<{
 *   resolve: (value: Value) => void,
 *   reject: (error: Error) => void,
 *   onProgress: OnProgress | undefined,
 * }>} Waiting
 */

export class WorkerRestorer {
  #worker;
  /** @type {Map<number, Waiting>} */
  #waiting = new Map();
  #next = 0;

  /**
   * @private
   * @param {Worker} worker
   */
  constructor(worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => this.#fail(new Error(event.message || "the worker cannot start"));
  }

  /**
   * Start a worker with a model file.
   *
   * @param {Worker} worker - One that runs `worker.js` of this package.
   * @param {Uint8Array} file
   * @param {OpenOptions} options
   * @returns {Promise<[WorkerRestorer, Description]>}
   * @throws {Error} The file or its references cannot be used; the message is for people.
   */
  static async open(worker, file, { references = null, runtime, provider = "webgpu", onProgress }) {
    const restorer = new WorkerRestorer(worker);
    const folder = new URL(runtime, globalThis.location?.href).href;
    /** @type {Call} */
    const call = { kind: "open", file, references, runtime: folder, provider };
    try {
      const description = await restorer.#send(call, { onProgress });
      return [restorer, /** @type {Description} */ (description)];
    } catch (error) {
      restorer.close();
      throw error;
    }
  }

  /**
   * Restore an image; see `restore`. A signal ends the run after the tile that is running.
   *
   * @param {Planes} image
   * @param {RestoreOptions} options
   * @returns {Promise<Planes>}
   */
  async restore(image, options = {}) {
    const result = await this.#send({ kind: "restore", image, overlap: options.overlap }, options);
    return /** @type {Planes} */ (result);
  }

  /**
   * Compare with the references that it was opened with; see `validate`.
   *
   * @param {OnProgress} [onProgress]
   * @returns {Promise<ValidationReport>}
   */
  async validate(onProgress) {
    const report = await this.#send({ kind: "validate" }, { onProgress });
    return /** @type {ValidationReport} */ (report);
  }

  /** End the worker; a running call fails. */
  close() {
    this.#worker.terminate();
    this.#fail(new Error("the worker was closed"));
  }

  /** @type {(call: Call, options: RestoreOptions) => Promise<Value>} */
  #send(call, { signal, onProgress }) {
    signal?.throwIfAborted();
    const id = this.#next++;
    const cancel = () => this.#post({ id, call: "cancel" });
    signal?.addEventListener("abort", cancel, { once: true });
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, onProgress });
      this.#post({ id, call });
    }).finally(() => signal?.removeEventListener("abort", cancel));
  }

  /** @type {(request: Request) => void} */
  #post(request) {
    this.#worker.postMessage(request);
  }

  /** @type {(answer: Answer) => void} */
  #receive(answer) {
    const waiting = this.#waiting.get(answer.id);
    if (answer.kind === "progress") {
      waiting?.onProgress?.(answer.done, answer.total);
      return;
    }
    this.#waiting.delete(answer.id);
    if (answer.kind === "value") waiting?.resolve(answer.value);
    else waiting?.reject(errorOf(answer));
  }

  /** @type {(error: Error) => void} */
  #fail(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

/** @type {(answer: ErrorAnswer) => Error} */
function errorOf({ name, message }) {
  return name === "AbortError" ? new DOMException(message, name) : new Error(message);
}
