/**
 * Which tiles an image is cut into, and how their results are blended: as `runtime/tiling` of
 * nystra does for a file that takes one size.
 */

/**
 * Planes of numbers, channel by channel and row by row.
 *
 * @typedef {Readonly<{
 *   channels: number,
 *   height: number,
 *   width: number,
 *   data: Float32Array,
 * }>} Planes
 */

/**
 * Called with the number of finished tiles or runs, and with their total.
 *
 * @typedef {(done: number, total: number) => void} OnProgress
 */

/**
 * First position along an axis, and the one after the last.
 *
 * @typedef {readonly [number, number]} Span
 */

/**
 * The tiles of one image, counted row by row; the last ones may reach beyond it.
 *
 * @typedef {Readonly<{
 *   height: number,
 *   width: number,
 *   rows: readonly Span[],
 *   columns: readonly Span[],
 * }>} TilePlan
 */

const DEFAULT_OVERLAP = 32;

/**
 * Return the default overlap of tiles of a side in pixels.
 *
 * @type {(side: number) => number}
 */
export function defaultOverlap(side) {
  return Math.max(Math.min(DEFAULT_OVERLAP, Math.floor(side / 4), side - 1), 0);
}

/**
 * Return the tiles along an axis: they start at multiples of the stride, and the last one is
 * shifted inward to end at the border.
 *
 * @type {(length: number, tile: number, overlap: number) => Span[]}
 * @throws {RangeError} The overlap leaves no stride.
 */
export function tileSpans(length, tile, overlap) {
  if (!Number.isInteger(overlap) || overlap < 0 || overlap >= tile) {
    throw new RangeError(`the overlap is ${overlap}, expected a whole number below ${tile}`);
  }
  /** @type {Span[]} */
  const spans = [];
  for (let start = 0; start < length - tile; start += tile - overlap) {
    spans.push([start, start + tile]);
  }
  const last = Math.max(length - tile, 0);
  spans.push([last, last + tile]);
  return spans;
}

/**
 * Return the tiles of an image, each of exactly the given size.
 *
 * @param {readonly [number, number]} image - Height and width of the image.
 * @param {readonly [number, number]} tile - Height and width of a tile.
 * @param {number} overlap
 * @returns {TilePlan}
 */
export function planTiles([height, width], [tileHeight, tileWidth], overlap) {
  return {
    height,
    width,
    rows: tileSpans(height, tileHeight, overlap),
    columns: tileSpans(width, tileWidth, overlap),
  };
}

/**
 * Return the position that a position beyond an axis mirrors; the edge is not repeated.
 *
 * @type {(place: number, length: number) => number}
 */
export function mirrored(place, length) {
  const period = Math.max(2 * length - 2, 1);
  const index = place % period;
  return Math.min(index, period - index);
}

/**
 * Return tile `index` of an image, mirrored where it reaches beyond it.
 *
 * @type {(image: Planes, plan: TilePlan, index: number) => Float32Array}
 */
export function cutTile(image, plan, index) {
  const [[top, bottom], [left, right]] = place(plan, index);
  const tile = new Float32Array(image.channels * (bottom - top) * (right - left));
  let next = 0;
  for (let channel = 0; channel < image.channels; channel++) {
    for (let y = top; y < bottom; y++) {
      const row = (channel * image.height + mirrored(y, image.height)) * image.width;
      for (let x = left; x < right; x++) {
        tile[next++] = image.data[row + mirrored(x, image.width)];
      }
    }
  }
  return tile;
}

/**
 * Return the weight of each span at each of its positions; the sum over all spans is 1.
 *
 * @type {(spans: readonly Span[], scale: number) => Float32Array[]}
 */
export function blendWeights(spans, scale) {
  const weights = spans.map(([start, end]) => new Float64Array((end - start) * scale).fill(1));
  for (let second = 1; second < spans.length; second++) {
    const [falling, rising] = [weights[second - 1], weights[second]];
    const shared = (spans[second - 1][1] - spans[second][0]) * scale;
    for (let i = 0; i < shared; i++) {
      const share = (i + 0.5) / shared;
      rising[i] *= share;
      falling[falling.length - 1 - i] *= share;
    }
  }
  const total = new Float64Array(spans[spans.length - 1][1] * scale);
  spans.forEach(([start], span) => {
    weights[span].forEach((weight, i) => (total[start * scale + i] += weight));
  });
  return spans.map(([start], span) =>
    Float32Array.from(weights[span], (weight, i) => weight / total[start * scale + i]),
  );
}

/** An image composed of the results of its tiles. */
export class Stitcher {
  #plan;
  #scale;
  #rowWeights;
  #columnWeights;

  /**
   * @param {TilePlan} plan
   * @param {number} scale
   * @param {number} channels
   */
  constructor(plan, scale, channels) {
    const [height, width] = [plan.height * scale, plan.width * scale];
    const data = new Float32Array(channels * height * width);
    /**
     * @readonly
     * @type {Planes}
     */
    this.image = { channels, height, width, data };
    this.#plan = plan;
    this.#scale = scale;
    this.#rowWeights = blendWeights(plan.rows, scale);
    this.#columnWeights = blendWeights(plan.columns, scale);
  }

  /**
   * Blend in the network's output for tile `index`.
   *
   * @param {number} index
   * @param {Float32Array} tile
   */
  add(index, tile) {
    const { channels, height, width, data } = this.image;
    const [[top], [left]] = place(this.#plan, index);
    const rows = this.#rowWeights[Math.floor(index / this.#plan.columns.length)];
    const columns = this.#columnWeights[index % this.#plan.columns.length];
    if (tile.length !== channels * rows.length * columns.length) {
      throw new RangeError(
        `the network made ${tile.length} numbers of a tile, expected ` +
          `${channels}x${rows.length}x${columns.length}`,
      );
    }
    const [firstRow, firstColumn] = [top * this.#scale, left * this.#scale];
    const [below, beside] = [
      Math.min(rows.length, height - firstRow),
      Math.min(columns.length, width - firstColumn),
    ];
    for (let channel = 0; channel < channels; channel++) {
      for (let y = 0; y < below; y++) {
        const from = (channel * rows.length + y) * columns.length;
        const to = (channel * height + firstRow + y) * width + firstColumn;
        for (let x = 0; x < beside; x++) {
          data[to + x] += tile[from + x] * rows[y] * columns[x];
        }
      }
    }
  }
}

/** @type {(plan: TilePlan, index: number) => [Span, Span]} */
function place({ rows, columns }, index) {
  return [rows[Math.floor(index / columns.length)], columns[index % columns.length]];
}
