/** Image restoration by ONNX files of nystra in a browser. */

export { FileError, readFacts, type Facts } from "./metadata.js";
export { openNetwork, type Network, type Provider, type Runtime } from "./network.js";
export { open, type Opened } from "./opening.js";
export { alphaOf, colorsOf, enlarged, pixelsOf, type Pixels } from "./images.js";
export { readReferences, type ReferenceCase } from "./references.js";
export { restore, type RestoreOptions } from "./restoring.js";
export { type OnProgress, type Planes } from "./tiling.js";
export { validate, type ValidationReport } from "./validation.js";
export { WorkerRestorer, type OpenOptions } from "./worker_restorer.js";
export { type Description } from "./messages.js";
