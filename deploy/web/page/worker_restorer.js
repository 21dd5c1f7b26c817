/** A network in a worker, so that the page responds while it runs. */
export class WorkerRestorer {
    worker;
    waiting = new Map();
    next = 0;
    constructor(worker) {
        this.worker = worker;
        worker.onmessage = ({ data }) => this.receive(data);
        worker.onerror = (event) => this.fail(new Error(event.message || "the worker cannot start"));
    }
    /**
     * Start a worker with a model file.
     *
     * @param worker - One that runs `worker.js` of this package.
     * @throws Error - The file or its references cannot be used; the message is for people.
     */
    static async open(worker, file, { references = null, runtime, provider = "webgpu", onProgress }) {
        const restorer = new WorkerRestorer(worker);
        const folder = new URL(runtime, globalThis.location?.href).href;
        const call = { kind: "open", file, references, runtime: folder, provider };
        try {
            return [restorer, (await restorer.send(call, { onProgress }))];
        }
        catch (error) {
            restorer.close();
            throw error;
        }
    }
    /** Restore an image; see `restore`. A signal ends the run after the tile that is running. */
    async restore(image, options = {}) {
        const call = { kind: "restore", image, overlap: options.overlap };
        return (await this.send(call, options));
    }
    /** Compare with the references that it was opened with; see `validate`. */
    async validate(onProgress) {
        return (await this.send({ kind: "validate" }, { onProgress }));
    }
    /** End the worker; a running call fails. */
    close() {
        this.worker.terminate();
        this.fail(new Error("the worker was closed"));
    }
    send(call, { signal, onProgress } = {}) {
        signal?.throwIfAborted();
        const id = this.next++;
        const cancel = () => this.post({ id, call: "cancel" });
        signal?.addEventListener("abort", cancel, { once: true });
        return new Promise((resolve, reject) => {
            this.waiting.set(id, { resolve, reject, onProgress });
            this.post({ id, call });
        }).finally(() => signal?.removeEventListener("abort", cancel));
    }
    post(request) {
        this.worker.postMessage(request);
    }
    receive(answer) {
        const waiting = this.waiting.get(answer.id);
        if (answer.kind === "progress") {
            waiting?.onProgress?.(answer.done, answer.total);
            return;
        }
        this.waiting.delete(answer.id);
        if (answer.kind === "value")
            waiting?.resolve(answer.value);
        else
            waiting?.reject(errorOf(answer));
    }
    fail(error) {
        for (const { reject } of this.waiting.values())
            reject(error);
        this.waiting.clear();
    }
}
function errorOf({ name, message }) {
    return name === "AbortError" ? new DOMException(message, name) : new Error(message);
}
