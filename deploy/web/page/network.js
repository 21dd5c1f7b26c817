/** A model file in onnxruntime-web, on WebGPU or WebAssembly. */

import { FileError, MOST_BYTES, readFacts } from "./metadata.js";

/** @import { Env, InferenceSession, TensorConstructor } from "onnxruntime-web" */
/** @import { Facts } from "./metadata.js" */

/**
 * The used part of onnxruntime-web; each of its modules has it.
 *
 * @typedef {Readonly<{
 *   InferenceSession: typeof InferenceSession,
 *   Tensor: TensorConstructor,
 *   env: Env,
 * }>} Runtime
 */

/** @typedef {"webgpu" | "wasm"} Provider */

/**
 * A network that takes tiles of one size: channels, height and width of `input` and `output`.
 *
 * @typedef {Readonly<{
 *   facts: Facts,
 *   provider: Provider,
 *   input: readonly [number, number, number],
 *   output: readonly [number, number, number],
 *   run: (tile: Float32Array) => Promise<Float32Array>,
 *   release: () => Promise<void>,
 * }>} Network
 */

const LARGEST_SIDE = 1 << 12;
const CPU_FALLBACK_IS_AN_ERROR = { session: { disable_cpu_ep_fallback: "1" } };

/**
 * Open a model file.
 *
 * @param {Runtime} runtime - A module of onnxruntime-web, its `env` set up.
 * @param {Uint8Array} file
 * @param {Provider} provider
 * @param {boolean} strict - On WebGPU: refuse a file of which a part would run on the CPU.
 * @returns {Promise<Network>}
 * @throws {FileError} It is none that the page can run.
 */
export async function openNetwork(runtime, file, provider, strict = false) {
  if (file.length > MOST_BYTES) {
    throw new FileError(`the model file has ${file.length >> 20} MiB, expected at most 1024`);
  }
  const facts = readFacts(file);
  const session = await runtime.InferenceSession.create(file, {
    executionProviders: [provider],
    ...(strict ? { extra: CPU_FALLBACK_IS_AN_ERROR } : {}),
  });
  try {
    const [name, input] = onlyImage(session.inputNames, session.inputMetadata, "takes");
    const [resultName, output] = onlyImage(session.outputNames, session.outputMetadata, "gives");
    if (output[1] !== input[1] * facts.scale || output[2] !== input[2] * facts.scale) {
      throw new FileError(`the file says the scale ${facts.scale} and makes ${output} of ${input}`);
    }
    return {
      facts,
      provider,
      input,
      output,
      run: async (tile) => {
        const tensor = new runtime.Tensor("float32", tile, [1, ...input]);
        const results = await session.run({ [name]: tensor });
        const data = results[resultName].data;
        if (!(data instanceof Float32Array)) {
          throw new FileError(`the network gives ${results[resultName].type}, expected float32`);
        }
        return data;
      },
      release: () => session.release(),
    };
  } catch (error) {
    await session.release();
    throw error;
  }
}

/**
 * @param {readonly string[]} names
 * @param {readonly InferenceSession.ValueMetadata[]} metadata
 * @param {string} does
 * @returns {[string, [number, number, number]]}
 */
function onlyImage(names, metadata, does) {
  const tensor = metadata[0];
  if (names.length !== 1 || !tensor.isTensor) {
    throw new FileError(`the network ${does} ${names.join(", ")}, expected one image`);
  }
  const [batch, channels, height, width, ...more] = tensor.shape.map(Number);
  const usual = batch === 1 && (channels === 1 || channels === 3) && more.length === 0;
  if (!usual || ![height, width].every((side) => side >= 1 && side <= LARGEST_SIDE)) {
    throw new FileError(
      `the network ${does} ${tensor.shape.join("x")}, expected 1x3xHxW or 1x1xHxW of one size of ` +
        `at most ${LARGEST_SIDE} pixels a side: export it with --target portable`,
    );
  }
  return [names[0], [channels, height, width]];
}
