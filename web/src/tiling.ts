/**
 * Which tiles an image is cut into, and how their results are blended: as `runtime/tiling` of
 * nystra does for a file that takes one size.
 */

/** Planes of numbers, channel by channel and row by row. */
export interface Planes {
  readonly channels: number;
  readonly height: number;
  readonly width: number;
  readonly data: Float32Array;
}

/** Called with the number of finished tiles or runs, and with their total. */
export type OnProgress = (done: number, total: number) => void;

/** First position along an axis, and the one after the last. */
export type Span = readonly [number, number];

/** The tiles of one image, counted row by row; the last ones may reach beyond it. */
export interface TilePlan {
  readonly height: number;
  readonly width: number;
  readonly rows: readonly Span[];
  readonly columns: readonly Span[];
}

const DEFAULT_OVERLAP = 32;

/** Return the default overlap of tiles of a side in pixels. */
export function defaultOverlap(side: number): number {
  return Math.max(Math.min(DEFAULT_OVERLAP, Math.floor(side / 4), side - 1), 0);
}

/**
 * Return the tiles along an axis: they start at multiples of the stride, and the last one is
 * shifted inward to end at the border.
 *
 * @throws RangeError - The overlap leaves no stride.
 */
export function tileSpans(length: number, tile: number, overlap: number): Span[] {
  if (!Number.isInteger(overlap) || overlap < 0 || overlap >= tile) {
    throw new RangeError(`the overlap is ${overlap}, expected a whole number below ${tile}`);
  }
  const spans: Span[] = [];
  for (let start = 0; start < length - tile; start += tile - overlap) {
    spans.push([start, start + tile]);
  }
  const last = Math.max(length - tile, 0);
  spans.push([last, last + tile]);
  return spans;
}

/** Return the tiles of an image, each of exactly the given size. */
export function planTiles(
  [height, width]: readonly [number, number],
  [tileHeight, tileWidth]: readonly [number, number],
  overlap: number,
): TilePlan {
  return {
    height,
    width,
    rows: tileSpans(height, tileHeight, overlap),
    columns: tileSpans(width, tileWidth, overlap),
  };
}

/** Return the position that a position beyond an axis mirrors; the edge is not repeated. */
export function mirrored(place: number, length: number): number {
  const period = Math.max(2 * length - 2, 1);
  const index = place % period;
  return Math.min(index, period - index);
}

/** Return tile `index` of an image, mirrored where it reaches beyond it. */
export function cutTile(image: Planes, plan: TilePlan, index: number): Float32Array {
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

/** Return the weight of each span at each of its positions; the sum over all spans is 1. */
export function blendWeights(spans: readonly Span[], scale: number): Float32Array[] {
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
  readonly image: Planes;
  private readonly rowWeights: Float32Array[];
  private readonly columnWeights: Float32Array[];

  constructor(
    private readonly plan: TilePlan,
    private readonly scale: number,
    channels: number,
  ) {
    const [height, width] = [plan.height * scale, plan.width * scale];
    const data = new Float32Array(channels * height * width);
    this.image = { channels, height, width, data };
    this.rowWeights = blendWeights(plan.rows, scale);
    this.columnWeights = blendWeights(plan.columns, scale);
  }

  /** Blend in the network's output for tile `index`. */
  add(index: number, tile: Float32Array): void {
    const { channels, height, width, data } = this.image;
    const [[top], [left]] = place(this.plan, index);
    const rows = this.rowWeights[Math.floor(index / this.plan.columns.length)];
    const columns = this.columnWeights[index % this.plan.columns.length];
    if (tile.length !== channels * rows.length * columns.length) {
      throw new RangeError(
        `the network made ${tile.length} numbers of a tile, expected ` +
          `${channels}x${rows.length}x${columns.length}`,
      );
    }
    const [firstRow, firstColumn] = [top * this.scale, left * this.scale];
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

function place(plan: TilePlan, index: number): [Span, Span] {
  const { rows, columns } = plan;
  return [rows[Math.floor(index / columns.length)], columns[index % columns.length]];
}
