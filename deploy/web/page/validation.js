/** Comparison of a network with recorded references, which are PyTorch's outputs. */

import { FileError } from "./metadata.js";

/** @import { Network } from "./network.js" */
/** @import { RecordedArray, ReferenceCase } from "./references.js" */
/** @import { OnProgress } from "./tiling.js" */

/**
 * One recorded run, compared.
 *
 * - `maxAbs`, `meanAbs`: largest and mean absolute difference; NaN where a number is none.
 * - `fault`: the error as text; null: none.
 *
 * @typedef {Readonly<{
 *   maxAbs: number,
 *   meanAbs: number,
 *   tolerance: number,
 *   fault: string | null,
 * }>} CaseReport
 */

/** @typedef {Readonly<{ passed: boolean, cases: readonly CaseReport[] }>} ValidationReport */

/**
 * Run the recorded inputs and compare the outputs.
 *
 * @param {Network} network
 * @param {readonly ReferenceCase[]} references
 * @param {OnProgress} [onProgress]
 * @returns {Promise<ValidationReport>}
 * @throws {FileError} The references are of another network.
 */
export async function validate(network, references, onProgress) {
  /** @type {CaseReport[]} */
  const cases = [];
  for (const reference of references) {
    checkShape("inputs", reference.input, network.input);
    checkShape("outputs", reference.output, network.output);
    // A copy: onnxruntime-web may keep what it is given.
    cases.push(compare(await network.run(reference.input.data.slice()), reference));
    onProgress?.(cases.length, references.length);
  }
  return { passed: cases.every((each) => each.fault === null), cases };
}

/** @type {(what: string, array: RecordedArray, shape: readonly number[]) => void} */
function checkShape(what, array, shape) {
  const [got, expected] = [array.shape.join("x"), [1, ...shape].join("x")];
  if (got !== expected) {
    throw new FileError(`the references have ${what} of ${got}, the network of ${expected}`);
  }
}

/** @type {(got: Float32Array, reference: ReferenceCase) => CaseReport} */
function compare(got, reference) {
  const { tolerance, meanTolerance } = reference;
  const expected = reference.output.data;
  let [maxAbs, sum] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    const difference = Math.abs(got[i] - expected[i]);
    maxAbs = Math.max(maxAbs, difference); // NaN, once there, stays
    sum += difference;
  }
  const meanAbs = sum / expected.length;
  const right = maxAbs <= tolerance || (meanTolerance !== null && meanAbs <= meanTolerance);
  const fault = `the largest difference is ${shown(maxAbs)}, allowed is ${shown(tolerance)}`;
  return { maxAbs, meanAbs, tolerance, fault: right ? null : fault };
}

/** @type {(value: number) => string} */
function shown(value) {
  return value.toExponential(1);
}
