/**
 * What a model file says of itself, read from its bytes: onnxruntime-web does not tell it. Nothing
 * of it is trusted: every number has bounds, and what contradicts the graph is refused.
 */

/** An invalid file; its message is shown to the user. */
export class FileError extends Error {
  /**
   * @readonly
   * @override
   */
  name = "FileError";
}

/**
 * The facts of a network that the page needs.
 *
 * - `scale`: output pixels per input pixel and axis.
 * - `inputRange`, `outputRange`: lowest and highest value of its input and of its output.
 * - `architecture`: name of the network, shown to the user.
 *
 * @typedef {Readonly<{
 *   scale: number,
 *   inputRange: readonly [number, number],
 *   outputRange: readonly [number, number],
 *   architecture: string,
 * }>} Facts
 */

/** Largest model file that is opened, in bytes. */
export const MOST_BYTES = 1 << 30;

const LARGEST_SCALE = 16;
const LARGEST_VALUE = 1e9;
const LONGEST_TEXT = 1 << 16;
const METADATA_FIELD = 14;

/**
 * Return the facts of a model file.
 *
 * @type {(file: Uint8Array) => Facts}
 * @throws {FileError} It is no ONNX file, or no network that takes and gives one image.
 */
export function readFacts(file) {
  const entries = readMetadata(file);
  const task = entries.get("nystra.task") ?? "restoration";
  if (task !== "restoration") {
    throw new FileError(`the file is of the task ${shown(task)}, expected restoration of images`);
  }
  if (entries.get("nystra.tiling") === "internal") {
    throw new FileError("the network needs the whole image, and the page works in tiles");
  }
  const scale = Number(entries.get("scale") ?? NaN);
  if (!Number.isInteger(scale) || scale < 1 || scale > LARGEST_SCALE) {
    throw new FileError(
      `the file says the scale ${shown(entries.get("scale"))}, expected 1 to ${LARGEST_SCALE}: ` +
        "export it with nystra-export",
    );
  }
  const range = readRange(entries.get("nystra.range"));
  return {
    scale,
    inputRange: range,
    outputRange: range,
    architecture: (entries.get("architecture") ?? "unknown").slice(0, 80),
  };
}

/**
 * Return the `metadata_props` of a model file that are short texts.
 *
 * Only the outermost fields of the protobuf message are walked; the graph is skipped by its length.
 *
 * @type {(file: Uint8Array) => Map<string, string>}
 * @throws {FileError} It is no ONNX file, or cut short.
 */
export function readMetadata(file) {
  /** @type {Map<string, string>} */
  const entries = new Map();
  for (const [field, value] of messageFields(file)) {
    if (field === METADATA_FIELD && value.length <= LONGEST_TEXT) {
      const texts = new Map([...messageFields(value)].map(([key, text]) => [key, decoded(text)]));
      entries.set(texts.get(1) ?? "", texts.get(2) ?? "");
    }
  }
  return entries;
}

/**
 * Yield number and bytes of the fields of a protobuf message that hold bytes.
 *
 * @type {(data: Uint8Array) => Generator<[number, Uint8Array]>}
 */
function* messageFields(data) {
  let position = 0;
  const number = () => {
    let value = 0;
    for (let factor = 1; factor < 2 ** 49; factor *= 128) {
      const byte = data[position++] ?? fail("it is truncated");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    // Longer numbers are negative ones, ten bytes long; no field that is read here has one.
    while ((data[position++] ?? fail("it is truncated")) > 127);
    return NaN;
  };
  while (position < data.length) {
    const tag = number();
    const kind = tag % 8;
    if (kind === 0) number();
    else if (kind === 1) position += 8;
    else if (kind === 5) position += 4;
    else if (kind === 2) {
      const length = number();
      if (!(position + length <= data.length)) fail("it is truncated");
      yield [Math.floor(tag / 8), data.subarray(position, position + length)];
      position += length;
    } else fail("it is not a protobuf message");
  }
}

/** @type {(text: string | undefined) => readonly [number, number]} */
function readRange(text) {
  if (text === undefined) return [0, 1];
  const value = parsed(text);
  if (
    Array.isArray(value) &&
    value.length === 2 &&
    value.every((item) => Number.isFinite(item) && Math.abs(item) <= LARGEST_VALUE) &&
    value[0] < value[1]
  ) {
    return [value[0], value[1]];
  }
  throw new FileError(`the file says the range ${shown(text)}, expected [lowest, highest]`);
}

/** @type {(text: string) => unknown} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @type {(bytes: Uint8Array) => string} */
function decoded(bytes) {
  return new TextDecoder().decode(bytes);
}

/** @type {(text: string | undefined) => string} */
function shown(text) {
  return text === undefined ? "of nothing" : JSON.stringify(text.slice(0, 60));
}

/** @type {(reason: string) => never} */
function fail(reason) {
  throw new FileError(`this is no ONNX file, or a damaged one (${reason})`);
}
