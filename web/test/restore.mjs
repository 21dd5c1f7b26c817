// An image through a model file by onnxruntime-web in node: `node restore.mjs MODEL REFERENCES
// WIDTH HEIGHT`, pixels as RGBA on the standard input and output, the report as JSON in the errors.
import { readFileSync, writeSync } from "node:fs";

import * as runtime from "onnxruntime-web";

import * as nystra from "../dist/index.js";

const [model, references, width, height] = process.argv.slice(2);
const data = new Uint8ClampedArray(readFileSync(0));
const network = await nystra.openNetwork(runtime, readFileSync(model), "wasm");
const recorded = await nystra.readReferences(readFileSync(references));
const report = await nystra.validate(network, recorded);
const pixels = { width: Number(width), height: Number(height), data };
const progress = [];
const colors = await nystra.restore(network, nystra.colorsOf(pixels), {
  onProgress: (done, total) => progress.push([done, total]),
});
const controller = new AbortController();
const cancelled = await nystra
  .restore(network, nystra.colorsOf(pixels), {
    signal: controller.signal,
    onProgress: () => controller.abort(),
  })
  .catch((error) => error.name);
const result = nystra.pixelsOf(colors, null);
process.stderr.write(JSON.stringify({ report, progress, cancelled, facts: network.facts }));
for (let done = 0; done < result.data.length; ) done += writeSync(1, result.data, done);
process.exit(0);
