/** An image through a network, tile by tile. */

import type { Network } from "./network.js";
import {
  cutTile,
  defaultOverlap,
  type OnProgress,
  type Planes,
  planTiles,
  Stitcher,
} from "./tiling.js";

/** Options of a run. */
export interface RestoreOptions {
  /** Overlap of neighboring tiles in pixels; usually 32, less for small tiles. */
  readonly overlap?: number | undefined;
  /** Ends the run between two tiles. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** Weights of red, green and blue in the luma of BT.601. */
const LUMA = [0.299, 0.587, 0.114];

/**
 * Restore an image.
 *
 * The channels of a color image go one by one through a network of one channel, and a gray
 * image three times into one of three, whose result becomes gray again: as in `nystra run`.
 *
 * @param image - Gray or RGB, from 0 to 1; at least one pixel.
 * @returns Planes from 0 to 1, not clipped, `scale` times as high and wide.
 * @throws DOMException - `AbortError`, if the signal is aborted.
 */
export async function restore(
  network: Network,
  image: Planes,
  options: RestoreOptions = {},
): Promise<Planes> {
  const [takes, gives] = [network.input[0], network.output[0]];
  const gray = image.channels === 1;
  if (takes === 3) {
    const result = await restorePlanes(network, gray ? repeated(image) : image, options);
    return gray && gives === 3 ? luma(result) : result;
  }
  if (gray || gives === 3) return restorePlanes(network, gray ? image : luma(image), options);
  const results: Planes[] = [];
  for (let channel = 0; channel < 3; channel++) {
    const onProgress: OnProgress = (done, total) =>
      options.onProgress?.(channel * total + done, 3 * total);
    const plane = planeOf(image, channel);
    results.push(await restorePlanes(network, plane, { ...options, onProgress }));
  }
  return joined(results);
}

async function restorePlanes(
  network: Network,
  image: Planes,
  { overlap, signal, onProgress }: RestoreOptions,
): Promise<Planes> {
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

function nextTask(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function planeOf(image: Planes, channel: number): Planes {
  const size = image.height * image.width;
  const data = image.data.subarray(channel * size, (channel + 1) * size);
  return { ...image, channels: 1, data };
}

function repeated(image: Planes): Planes {
  return joined([image, image, image]);
}

function joined(planes: readonly Planes[]): Planes {
  const size = planes[0].height * planes[0].width;
  const data = new Float32Array(planes.length * size);
  planes.forEach((plane, channel) => data.set(plane.data.subarray(0, size), channel * size));
  return { ...planes[0], channels: planes.length, data };
}

function luma(image: Planes): Planes {
  const size = image.height * image.width;
  const data = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    for (let channel = 0; channel < 3; channel++) {
      data[i] += LUMA[channel] * image.data[channel * size + i];
    }
  }
  return { ...image, channels: 1, data };
}
