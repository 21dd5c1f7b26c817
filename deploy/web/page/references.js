/**
 * Recorded references: inputs, and what PyTorch made of them, in the `.npz` file beside a model
 * file. Sizes that the archive states are bounded before anything is unpacked.
 */

import { FileError } from "./metadata.js";

/**
 * An array of the archive; images of 8 bits are numbers from 0 to 1.
 *
 * @typedef {Readonly<{ shape: readonly number[], data: Float32Array }>} RecordedArray
 */

/** @typedef {"<f4" | "|u1"} NumberType */

/**
 * One recorded run, and its tolerance.
 *
 * - `tolerance`: the largest difference allowed.
 * - `meanTolerance`: the mean difference allowed if the largest one is exceeded; null: none.
 *
 * @typedef {Readonly<{
 *   input: RecordedArray,
 *   output: RecordedArray,
 *   tolerance: number,
 *   meanTolerance: number | null,
 * }>} ReferenceCase
 */

const MOST_BYTES = 1 << 28;
const MOST_ENTRIES = 256;
const DEFAULT_TOLERANCE = 1e-4;
const LOOSEST = 0.5;
const SIGNATURES = { end: 0x06054b50, entry: 0x02014b50, local: 0x04034b50 };

/**
 * Return the recorded runs of a file of references.
 *
 * @type {(file: Uint8Array) => Promise<ReferenceCase[]>}
 * @throws {FileError} It is damaged, too large, or has several inputs or outputs a run.
 */
export async function readReferences(file) {
  /** @type {Map<number, RecordedArray>} */
  const inputs = new Map();
  /** @type {Map<number, RecordedArray>} */
  const outputs = new Map();
  /** @type {Record<string, unknown>} */
  let meta = {};
  for (const entry of zipEntries(file)) {
    const [, number, kind] = /^size(\d{1,6})\.(input|output)\..+\.npy$/.exec(entry.name) ?? [];
    if (number === undefined && entry.name !== "meta.npy") {
      throw new FileError(`the references hold ${JSON.stringify(entry.name.slice(0, 80))}`);
    }
    const [shape, kindOfNumber, body] = readArray(await unpacked(file, entry));
    if (number === undefined) {
      meta = readMeta(body);
      continue;
    }
    const side = kind === "input" ? inputs : outputs;
    if (side.has(Number(number))) throw new FileError("the references have several inputs for one run");
    side.set(Number(number), { shape, data: numbers(kindOfNumber, body) });
  }
  const order = [...inputs.keys()].sort((first, second) => first - second);
  const largest = limits(meta["tolerances"] ?? DEFAULT_TOLERANCE, order.length);
  const mean = meta["mean_tolerances"];
  const means = mean === undefined ? null : limits(mean, order.length);
  if (order.length === 0) throw new FileError("the references hold no runs");
  return order.map((number, index) => {
    const [input, output] = [inputs.get(number), outputs.get(number)];
    if (input === undefined || output === undefined) {
      throw new FileError("the references are incomplete");
    }
    const meanTolerance = means === null ? null : means[index];
    return { input, output, tolerance: largest[index], meanTolerance };
  });
}

/**
 * An entry in the directory of an archive.
 *
 * @typedef {Readonly<{
 *   name: string,
 *   compressed: boolean,
 *   packedSize: number,
 *   size: number,
 *   place: number,
 * }>} ZipEntry
 */

/** @type {(file: Uint8Array) => ZipEntry[]} */
function zipEntries(file) {
  const view = viewOf(file);
  const end = file.length - 22; // an archive of nystra has no comment after its end
  if (end < 0 || view.getUint32(end, true) !== SIGNATURES.end) damaged("it has no directory");
  const count = view.getUint16(end + 10, true);
  let position = view.getUint32(end + 16, true);
  /** @type {ZipEntry[]} */
  const entries = [];
  let total = 0;
  if (count > MOST_ENTRIES) damaged(`it lists ${count} arrays`);
  for (let index = 0; index < count; index++) {
    if (position + 46 > end || view.getUint32(position, true) !== SIGNATURES.entry) {
      damaged("its directory is truncated");
    }
    const encrypted = view.getUint16(position + 8, true) & 1;
    const method = view.getUint16(position + 10, true);
    const size = view.getUint32(position + 24, true);
    const nameLength = view.getUint16(position + 28, true);
    const extraLength = view.getUint16(position + 30, true) + view.getUint16(position + 32, true);
    total += size;
    if (encrypted || (method !== 0 && method !== 8)) damaged("its compression method is unknown");
    if (total > MOST_BYTES) damaged(`it unpacks to more than ${MOST_BYTES >> 20} MiB`);
    entries.push({
      name: new TextDecoder().decode(file.subarray(position + 46, position + 46 + nameLength)),
      compressed: method === 8,
      packedSize: view.getUint32(position + 20, true),
      size,
      place: view.getUint32(position + 42, true),
    });
    position += 46 + nameLength + extraLength;
  }
  return entries;
}

/**
 * Return the bytes of an entry, as many as the directory states.
 *
 * @type {(file: Uint8Array, entry: ZipEntry) => Promise<Uint8Array>}
 */
async function unpacked(file, entry) {
  const view = viewOf(file);
  const { place, packedSize } = entry;
  if (place + 30 > file.length || view.getUint32(place, true) !== SIGNATURES.local) {
    damaged("an array is not where its directory says");
  }
  const start = place + 30 + view.getUint16(place + 26, true) + view.getUint16(place + 28, true);
  const packed = file.slice(start, start + packedSize);
  if (packed.length !== packedSize) damaged("it is truncated");
  const content = entry.compressed ? await inflated(packed, entry.size) : packed;
  if (content.length !== entry.size) damaged("the size of an array differs from that in its directory");
  return content;
}

/**
 * Inflate bytes; stop as soon as there are more than stated.
 *
 * @type {(packed: Uint8Array<ArrayBuffer>, size: number) => Promise<Uint8Array>}
 */
async function inflated(packed, size) {
  const content = new Uint8Array(size);
  let length = 0;
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (length + part.value.length > size) damaged("an array is larger than its directory says");
      content.set(part.value, length);
      length += part.value.length;
    }
  } catch (error) {
    throw error instanceof FileError ? error : damaged(String(error));
  } finally {
    void reader.cancel().catch(() => undefined);
  }
  return content.subarray(0, length);
}

/**
 * Return shape, number type and bytes of a `.npy` file.
 *
 * @type {(file: Uint8Array) => [number[], NumberType, Uint8Array]}
 */
function readArray(file) {
  const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0];
  if (file.length < 10 || magic.some((byte, index) => file[index] !== byte)) damaged("no array");
  const begin = 10 + viewOf(file).getUint16(8, true);
  const header = new TextDecoder().decode(file.subarray(10, begin));
  const [, kind, order, lengths] =
    /^\{'descr': '(<f4|\|u1)', 'fortran_order': (False|True), 'shape': \(([\d, ]*)\), \}\s*$/.exec(
      header,
    ) ?? [];
  if (lengths === undefined || order !== "False") damaged(`an array is of ${header.slice(0, 80)}`);
  const shape = lengths.split(",").filter((text) => text.trim() !== "").map(Number);
  const body = file.subarray(begin);
  const count = shape.reduce((product, length) => product * length, 1);
  if (count * (kind === "<f4" ? 4 : 1) !== body.length) damaged("the bytes of an array do not fit its shape");
  return [shape, /** @type {NumberType} */ (kind), body];
}

/** @type {(kind: NumberType, body: Uint8Array) => Float32Array} */
function numbers(kind, body) {
  if (kind === "|u1") return Float32Array.from(body, (value) => value / 255);
  const view = viewOf(body);
  return Float32Array.from({ length: body.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

/** @type {(body: Uint8Array) => Record<string, unknown>} */
function readMeta(body) {
  try {
    /** @type {unknown} */
    const meta = JSON.parse(new TextDecoder().decode(body));
    return typeof meta === "object" && meta !== null ? { ...meta } : {};
  } catch {
    return damaged("its meta is not JSON");
  }
}

/**
 * Return one limit per run, which a wrong image can exceed.
 *
 * @type {(value: unknown, count: number) => number[]}
 */
function limits(value, count) {
  /** @type {unknown[]} */
  const list = Array.isArray(value) ? value : Array(count).fill(value);
  const usable = list.every(
    (limit) => typeof limit === "number" && limit >= 0 && limit < LOOSEST,
  );
  if (!usable || list.length !== count) damaged("a tolerance is missing, or so large that any output would pass");
  return /** @type {number[]} */ (list);
}

/** @type {(bytes: Uint8Array) => DataView} */
function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * @param {string} reason
 * @returns {never}
 */
function damaged(reason) {
  throw new FileError(`the references are damaged or not nystra's: ${reason}`);
}
