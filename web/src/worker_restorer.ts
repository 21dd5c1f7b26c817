/** A network in a worker, so that the page responds while it runs. */

import type { Answer, Call, Description, Request, Value } from "./messages.js";
import type { Provider } from "./network.js";
import type { RestoreOptions } from "./restoring.js";
import type { OnProgress, Planes } from "./tiling.js";
import type { ValidationReport } from "./validation.js";

/** What to open, and where. */
export interface OpenOptions {
  /** The `.npz` file next to the model file; without it a GPU is not checked. */
  readonly references?: Uint8Array | null;
  /** Address of the folder with the files of onnxruntime-web. */
  readonly runtime: string | URL;
  /** `wasm` does not try WebGPU. */
  readonly provider?: Provider;
  /** Called while WebGPU is compared with the references. */
  readonly onProgress?: OnProgress;
}

interface Waiting {
  readonly resolve: (value: Value) => void;
  readonly reject: (error: Error) => void;
  readonly onProgress: OnProgress | undefined;
}

export class WorkerRestorer {
  private readonly waiting = new Map<number, Waiting>();
  private next = 0;

  private constructor(private readonly worker: Worker) {
    worker.onmessage = ({ data }: MessageEvent<Answer>) => this.receive(data);
    worker.onerror = (event) => this.fail(new Error(event.message || "the worker cannot start"));
  }

  /**
   * Start a worker with a model file.
   *
   * @param worker - One that runs `worker.js` of this package.
   * @throws Error - The file or its references cannot be used; the message is for people.
   */
  static async open(
    worker: Worker,
    file: Uint8Array,
    { references = null, runtime, provider = "webgpu", onProgress }: OpenOptions,
  ): Promise<[WorkerRestorer, Description]> {
    const restorer = new WorkerRestorer(worker);
    const folder = new URL(runtime, globalThis.location?.href).href;
    const call: Call = { kind: "open", file, references, runtime: folder, provider };
    try {
      return [restorer, (await restorer.send(call, { onProgress })) as Description];
    } catch (error) {
      restorer.close();
      throw error;
    }
  }

  /** Restore an image; see `restore`. A signal ends the run after the tile that is running. */
  async restore(image: Planes, options: RestoreOptions = {}): Promise<Planes> {
    const call: Call = { kind: "restore", image, overlap: options.overlap };
    return (await this.send(call, options)) as Planes;
  }

  /** Compare with the references that it was opened with; see `validate`. */
  async validate(onProgress?: OnProgress): Promise<ValidationReport> {
    return (await this.send({ kind: "validate" }, { onProgress })) as ValidationReport;
  }

  /** End the worker; a running call fails. */
  close(): void {
    this.worker.terminate();
    this.fail(new Error("the worker was closed"));
  }

  private send(call: Call, { signal, onProgress }: RestoreOptions = {}): Promise<Value> {
    signal?.throwIfAborted();
    const id = this.next++;
    const cancel = (): void => this.post({ id, call: "cancel" });
    signal?.addEventListener("abort", cancel, { once: true });
    return new Promise<Value>((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, onProgress });
      this.post({ id, call });
    }).finally(() => signal?.removeEventListener("abort", cancel));
  }

  private post(request: Request): void {
    this.worker.postMessage(request);
  }

  private receive(answer: Answer): void {
    const waiting = this.waiting.get(answer.id);
    if (answer.kind === "progress") {
      waiting?.onProgress?.(answer.done, answer.total);
      return;
    }
    this.waiting.delete(answer.id);
    if (answer.kind === "value") waiting?.resolve(answer.value);
    else waiting?.reject(errorOf(answer));
  }

  private fail(error: Error): void {
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}

function errorOf({ name, message }: Answer & { kind: "error" }): Error {
  return name === "AbortError" ? new DOMException(message, name) : new Error(message);
}
