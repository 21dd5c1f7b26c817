/** Comparison of a network with recorded references, which are PyTorch's outputs. */

import { FileError } from "./metadata.js";
import type { Network } from "./network.js";
import type { RecordedArray, ReferenceCase } from "./references.js";
import type { OnProgress } from "./tiling.js";

/** One recorded run, compared. */
export interface CaseReport {
  /** Largest and mean absolute difference; NaN where a number is none. */
  readonly maxAbs: number;
  readonly meanAbs: number;
  readonly tolerance: number;
  /** The error as text; null: none. */
  readonly fault: string | null;
}

export interface ValidationReport {
  readonly passed: boolean;
  readonly cases: readonly CaseReport[];
}

/**
 * Run the recorded inputs and compare the outputs.
 *
 * @throws FileError - The references are of another network.
 */
export async function validate(
  network: Network,
  references: readonly ReferenceCase[],
  onProgress?: OnProgress,
): Promise<ValidationReport> {
  const cases: CaseReport[] = [];
  for (const reference of references) {
    checkShape("inputs", reference.input, network.input);
    checkShape("outputs", reference.output, network.output);
    // A copy: onnxruntime-web may keep what it is given.
    cases.push(compare(await network.run(reference.input.data.slice()), reference));
    onProgress?.(cases.length, references.length);
  }
  return { passed: cases.every((each) => each.fault === null), cases };
}

function checkShape(what: string, array: RecordedArray, shape: readonly number[]): void {
  const [got, expected] = [array.shape.join("x"), [1, ...shape].join("x")];
  if (got !== expected) {
    throw new FileError(`the references have ${what} of ${got}, the network of ${expected}`);
  }
}

function compare(got: Float32Array, reference: ReferenceCase): CaseReport {
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

function shown(value: number): string {
  return value.toExponential(1);
}
