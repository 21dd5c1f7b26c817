/** The page that `nystra deploy web` writes: one network for the user's images. */
import { alphaOf, colorsOf, enlarged, LONGEST_SIDE, MOST_PIXELS, pixelsOf, } from "./images.js";
import { WorkerRestorer } from "./worker_restorer.js";
const PLAIN_NAME = /^[\w.-]{1,200}$/;
const element = (id) => document.getElementById(id);
const controls = {
    about: element("about"),
    after: element("after"),
    afterSize: element("after-size"),
    before: element("before"),
    beforeSize: element("before-size"),
    cancel: element("cancel"),
    choice: element("choice"),
    download: element("download"),
    error: element("error"),
    file: element("file"),
    images: element("images"),
    progress: element("progress"),
    report: element("report"),
    run: element("run"),
    tiles: element("tiles"),
    validate: element("validate"),
    warning: element("warning"),
};
/** Open the network next to the page. */
async function start() {
    controls.about.textContent = "Loading the network …";
    const listing = await (await fetched("model.json")).json();
    const { model, references } = listing;
    const file = await bytesOf(model);
    const recorded = references === null ? null : await bytesOf(references);
    const provider = new URLSearchParams(location.search).get("provider");
    const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    const [restorer, description] = await WorkerRestorer.open(worker, file, {
        references: recorded,
        runtime: new URL("ort/", import.meta.url),
        provider: provider === "wasm" ? "wasm" : "webgpu",
        onProgress: (done, total) => {
            controls.about.textContent = `Comparing WebGPU with the references: ${done} of ${total} …`;
        },
    });
    describe(description);
    connect(restorer, description);
}
function describe({ architecture, scale, tile, provider, ...more }) {
    const [height, width] = tile;
    const made = scale === 1 ? "of the same size" : `${scale} times as large`;
    controls.about.textContent =
        `${architecture}: images ${made}, in tiles of ${width}x${height}, on ` +
            `${provider === "webgpu" ? "WebGPU" : "WebAssembly (CPU)"}.`;
    controls.about.dataset["provider"] = provider;
    show(controls.warning, more.warnings.join(" "));
    if (more.report !== null)
        showReport(more.report);
    controls.validate.disabled = more.references === 0;
    controls.file.disabled = false;
}
function connect(restorer, { scale }) {
    const take = (file) => {
        if (file && !controls.file.disabled)
            void guarded(() => restoreFile(restorer, scale, file));
    };
    controls.file.addEventListener("change", () => take(controls.file.files?.[0]));
    controls.choice.addEventListener("dragover", (event) => {
        event.preventDefault();
        controls.choice.classList.add("over");
    });
    controls.choice.addEventListener("dragleave", () => controls.choice.classList.remove("over"));
    controls.choice.addEventListener("drop", (event) => {
        event.preventDefault();
        controls.choice.classList.remove("over");
        take(event.dataTransfer?.files[0]);
    });
    controls.validate.addEventListener("click", () => {
        void guarded(async () => showReport(await restorer.validate(showProgress("runs"))));
    });
}
async function restoreFile(restorer, scale, file) {
    const pixels = await decoded(file);
    const [width, height] = [pixels.width * scale, pixels.height * scale];
    if (Math.max(width, height) > LONGEST_SIDE || width * height > MOST_PIXELS) {
        throw new Error(`The result would have ${width}x${height} pixels; this page makes at most ` +
            `${LONGEST_SIDE} a side and ${Math.floor(MOST_PIXELS / 1e6)} million in all. ` +
            "Use nystra run for larger images.");
    }
    controls.images.hidden = false;
    draw(controls.before, pixels, controls.beforeSize);
    controls.after.width = controls.after.height = 0;
    controls.afterSize.textContent = "";
    controls.download.hidden = true;
    const controller = new AbortController();
    const cancel = () => controller.abort();
    controls.cancel.addEventListener("click", cancel);
    const begin = performance.now();
    try {
        const colors = await restorer.restore(colorsOf(pixels), {
            signal: controller.signal,
            onProgress: showProgress("tiles"),
        });
        const alpha = alphaOf(pixels);
        const result = pixelsOf(colors, alpha === null ? null : enlarged(alpha, scale));
        draw(controls.after, result, controls.afterSize);
        controls.afterSize.textContent += `, ${((performance.now() - begin) / 1000).toFixed(1)} s.`;
        await offer(file.name);
    }
    finally {
        controls.cancel.removeEventListener("click", cancel);
    }
}
/** Do long work with the controls disabled; show errors. */
async function guarded(action) {
    const enabled = [controls.file, controls.validate].filter((control) => !control.disabled);
    enabled.forEach((control) => (control.disabled = true));
    show(controls.error, "");
    controls.progress.value = 0;
    controls.tiles.textContent = "";
    controls.run.hidden = false;
    try {
        await action();
    }
    catch (error) {
        show(controls.error, messageOf(error));
    }
    finally {
        controls.run.hidden = true;
        enabled.forEach((control) => (control.disabled = false));
    }
}
function showProgress(what) {
    return (done, total) => {
        controls.progress.max = total;
        controls.progress.value = done;
        controls.tiles.textContent = `${done} of ${total} ${what}`;
    };
}
function showReport(report) {
    const rows = report.cases.map(({ maxAbs, tolerance, fault }, index) => {
        const row = document.createElement("tr");
        const texts = [String(index + 1), maxAbs.toExponential(1), tolerance.toExponential(1)];
        for (const text of [...texts, fault === null ? "passed" : `failed: ${fault}`]) {
            row.append(Object.assign(document.createElement("td"), { textContent: text }));
        }
        row.classList.toggle("failed", fault !== null);
        return row;
    });
    controls.report.tBodies[0].replaceChildren(...rows);
    controls.report.dataset["passed"] = String(report.passed);
    controls.report.hidden = false;
}
function show(box, text) {
    box.textContent = text;
    box.hidden = text === "";
}
async function decoded(file) {
    const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
    const bitmap = await createImageBitmap(file, options).catch(() => {
        throw new Error(`${file.name} is no image that this browser reads.`);
    });
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    if (context === null)
        throw new Error("This browser has no canvas of that size.");
    context.drawImage(bitmap, 0, 0);
    const { width, height, data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    bitmap.close();
    return { width, height, data: data };
}
function draw(canvas, pixels, caption) {
    canvas.width = pixels.width;
    canvas.height = pixels.height;
    canvas.getContext("2d")?.putImageData(new ImageData(pixels.data, pixels.width), 0, 0);
    caption.textContent = `${pixels.width}x${pixels.height} pixels`;
}
async function offer(name) {
    const blob = await new Promise((resolve) => controls.after.toBlob(resolve));
    if (blob === null)
        throw new Error("This browser cannot write the result as PNG.");
    URL.revokeObjectURL(controls.download.href);
    controls.download.href = URL.createObjectURL(blob);
    controls.download.download = `${name.replace(/\.[^.]*$/, "")}_restored.png`;
    controls.download.hidden = false;
}
async function bytesOf(name) {
    if (typeof name !== "string" || !PLAIN_NAME.test(name)) {
        throw new Error("model.json names no file in this folder: run nystra deploy web again.");
    }
    return new Uint8Array(await (await fetched(name)).arrayBuffer());
}
async function fetched(name) {
    const response = await fetch(name);
    if (!response.ok)
        throw new Error(`${name} cannot be loaded (${response.status}).`);
    return response;
}
function messageOf(error) {
    if (!(error instanceof Error))
        return String(error);
    return error.name === "AbortError" ? "Cancelled." : error.message;
}
start().catch((error) => {
    controls.about.textContent = "The network cannot be run.";
    show(controls.error, messageOf(error));
});
