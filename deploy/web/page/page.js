/** The page that `nystra deploy web` writes: one network for the user's images. */

import { alphaOf, colorsOf, enlarged, LONGEST_SIDE, MOST_PIXELS, pixelsOf } from "./images.js";
import { WorkerRestorer } from "./worker_restorer.js";

/** @import { Pixels } from "./images.js" */
/** @import { OnProgress } from "./tiling.js" */
/** @import { ValidationReport } from "./validation.js" */
/** @import { Description } from "./worker.js" */

const PLAIN_NAME = /^[\w.-]{1,200}$/;

const controls = {
  about: element("about", HTMLElement),
  after: element("after", HTMLCanvasElement),
  afterSize: element("after-size", HTMLElement),
  before: element("before", HTMLCanvasElement),
  beforeSize: element("before-size", HTMLElement),
  cancel: element("cancel", HTMLButtonElement),
  choice: element("choice", HTMLElement),
  download: element("download", HTMLAnchorElement),
  error: element("error", HTMLElement),
  file: element("file", HTMLInputElement),
  images: element("images", HTMLElement),
  progress: element("progress", HTMLProgressElement),
  report: element("report", HTMLTableElement),
  run: element("run", HTMLElement),
  tiles: element("tiles", HTMLElement),
  validate: element("validate", HTMLButtonElement),
  warning: element("warning", HTMLElement),
};

/**
 * Return the element of the page with an id.
 *
 * @template {HTMLElement} Kind
 * @param {string} id
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
function element(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html has no ${kind.name} ${id}.`);
  return found;
}

/** Open the network next to the page. */
async function start() {
  controls.about.textContent = "Loading the network …";
  /** @type {{ model: unknown, references: unknown }} */
  const { model, references } = await (await fetched("model.json")).json();
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

/** @type {(description: Description) => void} */
function describe({ architecture, scale, tile, provider, ...more }) {
  const [height, width] = tile;
  const made = scale === 1 ? "of the same size" : `${scale} times as large`;
  controls.about.textContent =
    `${architecture}: images ${made}, in tiles of ${width}x${height}, on ` +
    `${provider === "webgpu" ? "WebGPU" : "WebAssembly (CPU)"}.`;
  controls.about.dataset["provider"] = provider;
  show(controls.warning, more.warnings.join(" "));
  if (more.report !== null) showReport(more.report);
  controls.validate.disabled = more.references === 0;
  controls.file.disabled = false;
}

/** @type {(restorer: WorkerRestorer, description: Description) => void} */
function connect(restorer, { scale }) {
  /** @type {(file: File | undefined) => void} */
  const take = (file) => {
    if (file && !controls.file.disabled) void guarded(() => restoreFile(restorer, scale, file));
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

/** @type {(restorer: WorkerRestorer, scale: number, file: File) => Promise<void>} */
async function restoreFile(restorer, scale, file) {
  const pixels = await decoded(file);
  const [width, height] = [pixels.width * scale, pixels.height * scale];
  if (Math.max(width, height) > LONGEST_SIDE || width * height > MOST_PIXELS) {
    throw new Error(
      `The result would have ${width}x${height} pixels; this page makes at most ` +
        `${LONGEST_SIDE} a side and ${Math.floor(MOST_PIXELS / 1e6)} million in all. ` +
        "Use nystra run for larger images.",
    );
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
  } finally {
    controls.cancel.removeEventListener("click", cancel);
  }
}

/**
 * Do long work with the controls disabled; show errors.
 *
 * @type {(action: () => Promise<void>) => Promise<void>}
 */
async function guarded(action) {
  const enabled = [controls.file, controls.validate].filter((control) => !control.disabled);
  enabled.forEach((control) => (control.disabled = true));
  show(controls.error, "");
  controls.progress.value = 0;
  controls.tiles.textContent = "";
  controls.run.hidden = false;
  try {
    await action();
  } catch (error) {
    show(controls.error, messageOf(error));
  } finally {
    controls.run.hidden = true;
    enabled.forEach((control) => (control.disabled = false));
  }
}

/** @type {(what: string) => OnProgress} */
function showProgress(what) {
  return (done, total) => {
    controls.progress.max = total;
    controls.progress.value = done;
    controls.tiles.textContent = `${done} of ${total} ${what}`;
  };
}

/** @type {(report: ValidationReport) => void} */
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

/** @type {(box: HTMLElement, text: string) => void} */
function show(box, text) {
  box.textContent = text;
  box.hidden = text === "";
}

/** @type {(file: File) => Promise<Pixels>} */
async function decoded(file) {
  /** @type {ImageBitmapOptions} */
  const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const bitmap = await createImageBitmap(file, options).catch(() => {
    throw new Error(`${file.name} is no image that this browser reads.`);
  });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (context === null) throw new Error("This browser has no canvas of that size.");
  context.drawImage(bitmap, 0, 0);
  const { width, height, data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  bitmap.close();
  return { width, height, data };
}

/** @type {(canvas: HTMLCanvasElement, pixels: Pixels, caption: HTMLElement) => void} */
function draw(canvas, pixels, caption) {
  canvas.width = pixels.width;
  canvas.height = pixels.height;
  canvas.getContext("2d")?.putImageData(new ImageData(pixels.data, pixels.width), 0, 0);
  caption.textContent = `${pixels.width}x${pixels.height} pixels`;
}

/** @type {(name: string) => Promise<void>} */
async function offer(name) {
  /** @type {Blob | null} */
  const blob = await new Promise((resolve) => controls.after.toBlob(resolve));
  if (blob === null) throw new Error("This browser cannot write the result as PNG.");
  URL.revokeObjectURL(controls.download.href);
  controls.download.href = URL.createObjectURL(blob);
  controls.download.download = `${name.replace(/\.[^.]*$/, "")}_restored.png`;
  controls.download.hidden = false;
}

/** @type {(name: unknown) => Promise<Uint8Array>} */
async function bytesOf(name) {
  if (typeof name !== "string" || !PLAIN_NAME.test(name)) {
    throw new Error("model.json names no file in this folder: run nystra deploy web again.");
  }
  return new Uint8Array(await (await fetched(name)).arrayBuffer());
}

/** @type {(name: string) => Promise<Response>} */
async function fetched(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be loaded (${response.status}).`);
  return response;
}

/** @type {(error: unknown) => string} */
function messageOf(error) {
  if (!(error instanceof Error)) return String(error);
  return error.name === "AbortError" ? "Cancelled." : error.message;
}

start().catch((error) => {
  controls.about.textContent = "The network cannot be run.";
  show(controls.error, messageOf(error));
});
