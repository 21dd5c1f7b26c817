/** Conversion between the pixels of a canvas and planes of numbers. */

/** @import { Planes } from "./tiling.js" */

/**
 * Pixels as a canvas has them: red, green, blue, alpha, row by row.
 *
 * @typedef {Readonly<{
 *   width: number,
 *   height: number,
 *   data: Uint8ClampedArray<ArrayBuffer>,
 * }>} Pixels
 */

/** Largest number of pixels of a result, the limit of a canvas. */
export const MOST_PIXELS = 1 << 27;
/** Longest side of a result. */
export const LONGEST_SIDE = 16384;

/**
 * Return the colors of pixels, from 0 to 1.
 *
 * @type {(pixels: Pixels) => Planes}
 */
export function colorsOf({ width, height, data }) {
  return { channels: 3, height, width, data: planesOf(data, [0, 1, 2]) };
}

/**
 * Return the opacity of pixels, from 0 to 1; null if all are opaque.
 *
 * @type {(pixels: Pixels) => Planes | null}
 */
export function alphaOf({ width, height, data }) {
  const alpha = planesOf(data, [3]);
  return alpha.every((value) => value === 1) ? null : { channels: 1, height, width, data: alpha };
}

/**
 * Return planes as pixels, clipped and rounded to nearest; gray ones have equal colors.
 *
 * @type {(colors: Planes, alpha: Planes | null) => Pixels}
 */
export function pixelsOf(colors, alpha) {
  const { channels, height, width } = colors;
  const size = height * width;
  const data = new Uint8ClampedArray(4 * size);
  /** @type {(value: number) => number} */
  const eight = (value) => Math.floor(Math.min(Math.max(value, 0), 1) * 255 + 0.5);
  for (let i = 0; i < size; i++) {
    for (let channel = 0; channel < 3; channel++) {
      data[4 * i + channel] = eight(colors.data[(channels === 1 ? 0 : channel) * size + i]);
    }
    data[4 * i + 3] = alpha === null ? 255 : eight(alpha.data[i]);
  }
  return { width, height, data };
}

/**
 * Return a plane `scale` times as high and wide, by linear interpolation.
 *
 * @type {(plane: Planes, scale: number) => Planes}
 */
export function enlarged(plane, scale) {
  const [height, width] = [plane.height * scale, plane.width * scale];
  const data = new Float32Array(height * width);
  const rows = Array.from({ length: height }, (_, y) => between(y, scale, plane.height));
  const columns = Array.from({ length: width }, (_, x) => between(x, scale, plane.width));
  rows.forEach(([top, bottom, down], y) => {
    columns.forEach(([left, right, across], x) => {
      /** @type {(row: number, column: number) => number} */
      const at = (row, column) => plane.data[row * plane.width + column];
      const above = at(top, left) * (1 - across) + at(top, right) * across;
      const below = at(bottom, left) * (1 - across) + at(bottom, right) * across;
      data[y * width + x] = above * (1 - down) + below * down;
    });
  });
  return { channels: 1, height, width, data };
}

/**
 * Return the two positions around an enlarged one, and the distance from the first.
 *
 * @type {(place: number, scale: number, length: number) => [number, number, number]}
 */
function between(place, scale, length) {
  const exact = Math.min(Math.max((place + 0.5) / scale - 0.5, 0), length - 1);
  const first = Math.floor(exact);
  return [first, Math.min(first + 1, length - 1), exact - first];
}

/** @type {(data: Uint8ClampedArray, channels: readonly number[]) => Float32Array} */
function planesOf(data, channels) {
  const size = data.length / 4;
  const planes = new Float32Array(channels.length * size);
  channels.forEach((channel, index) => {
    for (let i = 0; i < size; i++) planes[index * size + i] = data[4 * i + channel] / 255;
  });
  return planes;
}
