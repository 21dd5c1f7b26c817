/** Image restoration by ONNX files of nystra in a browser: what the npm package exports. */

export { FileError, readFacts } from "./metadata.js";
export { openNetwork } from "./network.js";
export { open } from "./opening.js";
export { alphaOf, colorsOf, enlarged, pixelsOf } from "./images.js";
export { readReferences } from "./references.js";
export { restore } from "./restoring.js";
export { validate } from "./validation.js";
export { WorkerRestorer } from "./worker_restorer.js";

/** @typedef {import("./metadata.js").Facts} Facts */
/** @typedef {import("./network.js").Network} Network */
/** @typedef {import("./network.js").Provider} Provider */
/** @typedef {import("./network.js").Runtime} Runtime */
/** @typedef {import("./opening.js").Opened} Opened */
/** @typedef {import("./images.js").Pixels} Pixels */
/** @typedef {import("./references.js").ReferenceCase} ReferenceCase */
/** @typedef {import("./restoring.js").RestoreOptions} RestoreOptions */
/** @typedef {import("./tiling.js").OnProgress} OnProgress */
/** @typedef {import("./tiling.js").Planes} Planes */
/** @typedef {import("./validation.js").ValidationReport} ValidationReport */
/** @typedef {import("./worker.js").Description} Description */
/** @typedef {import("./worker_restorer.js").OpenOptions} OpenOptions */
