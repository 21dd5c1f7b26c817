/** The worker that runs a network: loaded by `WorkerRestorer`. */
import { FileError } from "./metadata.js";
import { open } from "./opening.js";
import { readReferences } from "./references.js";
import { restore } from "./restoring.js";
import { validate } from "./validation.js";
const MODULES = {
    webgpu: "ort.webgpu.min.mjs",
    wasm: "ort.wasm.min.mjs",
};
const MOST_THREADS = 8;
const scope = globalThis;
const running = new Map();
let network = null;
let references = [];
let last = Promise.resolve();
scope.onmessage = ({ data: { id, call } }) => {
    if (call === "cancel") {
        running.get(id)?.abort();
        return;
    }
    const controller = new AbortController();
    running.set(id, controller);
    last = last.then(() => answer(id, call, controller)); // a session runs one thing at a time
};
async function answer(id, call, controller) {
    const onProgress = (done, total) => scope.postMessage({ id, kind: "progress", done, total }, []);
    try {
        const value = await carriedOut(call, controller.signal, onProgress);
        const transfer = "data" in value ? [value.data.buffer] : [];
        scope.postMessage({ id, kind: "value", value }, transfer);
    }
    catch (error) {
        const { name, message } = error instanceof Error ? error : new Error(String(error));
        scope.postMessage({ id, kind: "error", name, message }, []);
    }
    finally {
        running.delete(id);
    }
}
async function carriedOut(call, signal, onProgress) {
    if (call.kind === "open")
        return opened(call, onProgress);
    if (network === null)
        throw new FileError("no model file is open");
    if (call.kind === "validate")
        return validate(network, references, onProgress);
    return restore(network, call.image, { overlap: call.overlap, signal, onProgress });
}
async function opened(call, onProgress) {
    await network?.release();
    network = null;
    references = call.references === null ? [] : await readReferences(call.references);
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
async function loadRuntime(folder, provider) {
    const runtime = (await import(new URL(MODULES[provider], folder).href));
    runtime.env.wasm.wasmPaths = folder;
    runtime.env.wasm.numThreads = scope.crossOriginIsolated
        ? Math.min(scope.navigator.hardwareConcurrency, MOST_THREADS)
        : 1;
    return runtime;
}
