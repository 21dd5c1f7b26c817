/** An image through a network, tile by tile. */

import { cutTile, defaultOverlap, planTiles, Stitcher } from "./tiling.js";

/** @import { Network } from "./network.js" */
/** @import { OnProgress, Planes } from "./tiling.js" */

/**
 * Options of a run.
 *
 * - `overlap`: of neighboring tiles in pixels; usually 32, less for small tiles.
 * - `signal`: ends the run between two tiles.
 *
 * @typedef {Readonly<{
 *   overlap?: number | undefined,
 *   signal?: AbortSignal | undefined,
 *   onProgress?: OnProgress | undefined,
 * }>} RestoreOptions
 */

/** Weights of red, green and blue in the luma of BT.601. */
const LUMA = [0.299, 0.587, 0.114];

/**
 * Restore an image.
 *
 * The channels of a color image go one by one through a network of one channel, and a gray
 * image three times into one of three, whose result becomes gray again: as in `nystra run`.
 *
 * @param {Network} network
 * @param {Planes} image - Gray or RGB, from 0 to 1; at least one pixel.
 * @param {RestoreOptions} options
 * @returns {Promise<Planes>} From 0 to 1, not clipped, `scale` times as high and wide.
 * @throws {DOMException} `AbortError`, if the signal is aborted.
 */
export async function restore(network, image, options = {}) {
  const [takes, gives] = [network.input[0], network.output[0]];
  const gray = image.channels === 1;
  if (takes === 3) {
    const result = await restorePlanes(network, gray ? repeated(image) : image, options);
    return gray && gives === 3 ? luma(result) : result;
  }
  if (gray || gives === 3) return restorePlanes(network, gray ? image : luma(image), options);
  /** @type {Planes[]} */
  const results = [];
  for (let channel = 0; channel < 3; channel++) {
    /** @type {OnProgress} */
    const onProgress = (done, total) => options.onProgress?.(channel * total + done, 3 * total);
    const plane = planeOf(image, channel);
    results.push(await restorePlanes(network, plane, { ...options, onProgress }));
  }
  return joined(results);
}

/** @type {(network: Network, image: Planes, options: RestoreOptions) => Promise<Planes>} */
async function restorePlanes(network, image, { overlap, signal, onProgress }) {
  const [, height, width] = network.input;
  const { inputRange, outputRange, scale } = network.facts;
  const shared = overlap ?? defaultOverlap(Math.min(height, width));
  const plan = planTiles([image.height, image.width], [height, width], shared);
  const stitcher = new Stitcher(plan, scale, network.output[0]);
  const total = plan.rows.length * plan.columns.length;
  for (let index = 0; index < total; index++) {
    await nextTask(); // lets a message that cancels come in
    signal?.throwIfAborted();
    const tile = cutTile(image, plan, index);
    const [low, high] = inputRange;
    if (low !== 0 || high !== 1) tile.forEach((value, i) => (tile[i] = value * (high - low) + low));
    stitcher.add(index, await network.run(tile));
    onProgress?.(index + 1, total);
  }
  const [low, high] = outputRange;
  const { data } = stitcher.image;
  if (low !== 0 || high !== 1) data.forEach((value, i) => (data[i] = (value - low) / (high - low)));
  return stitcher.image;
}

/** @type {() => Promise<void>} */
function nextTask() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** @type {(image: Planes, channel: number) => Planes} */
function planeOf(image, channel) {
  const size = image.height * image.width;
  const data = image.data.subarray(channel * size, (channel + 1) * size);
  return { ...image, channels: 1, data };
}

/** @type {(image: Planes) => Planes} */
function repeated(image) {
  return joined([image, image, image]);
}

/** @type {(planes: readonly Planes[]) => Planes} */
function joined(planes) {
  const size = planes[0].height * planes[0].width;
  const data = new Float32Array(planes.length * size);
  planes.forEach((plane, channel) => data.set(plane.data.subarray(0, size), channel * size));
  return { ...planes[0], channels: planes.length, data };
}

/** @type {(image: Planes) => Planes} */
function luma(image) {
  const size = image.height * image.width;
  const data = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    for (let channel = 0; channel < 3; channel++) {
      data[i] += LUMA[channel] * image.data[channel * size + i];
    }
  }
  return { ...image, channels: 1, data };
}
