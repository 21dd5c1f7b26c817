// Landmarks of a window: means over its cells (adaptive average pooling). Cells overlap where their
// number does not divide the side of the window.
#pragma once

#include "landmark_window.h"

namespace nystra::cuda {
namespace {

// Start and end of cell i if n positions are divided into `parts` cells, and whether a position is
// in the cell.
__device__ __forceinline__ int cell_start(int i, int n, int parts) { return i * n / parts; }
__device__ __forceinline__ int cell_end(int i, int n, int parts) {
  return ((i + 1) * n + parts - 1) / parts;
}
__device__ __forceinline__ bool in_cell(int at, int i, int n, int parts) {
  return i * n < (at + 1) * parts && at * parts < (i + 1) * n;
}

// The rows [y0, y1) and columns [x0, x1) of the window whose mean is a landmark.
struct Cell {
  int y0, y1, x0, x1;

  __device__ Cell(const LandmarkJob& job, int landmark) {
    const int row = landmark / job.cols, col = landmark % job.cols;
    y0 = cell_start(row, job.shape.window_h, job.rows);
    y1 = cell_end(row, job.shape.window_h, job.rows);
    x0 = cell_start(col, job.shape.window_w, job.cols);
    x1 = cell_end(col, job.shape.window_w, job.cols);
  }

  __device__ int area() const { return (y1 - y0) * (x1 - x0); }
};

// Computes one landmark with a warp: out[c] = factor * mean of channel c over the cell, and zeros
// up to d_step.
template <int kWidth, class T>
__device__ __forceinline__ void pool(const LandmarkJob& job, const Place& place, const T* map,
                                     int landmark, float factor, float* out, int d_step, int lane) {
  const Windows& s = job.shape;
  const Cell cell(job, landmark);
  const int across = cell.x1 - cell.x0, tokens = cell.area();
  const float mean = factor / float(tokens);
  const int padded = round_up(s.head_dim, 4), groups = padded / kWidth;
  const int shift = lanes_shift(groups), lanes = 1 << shift, together = kWarp >> shift;
  for (int g0 = 0; g0 < groups; g0 += lanes) {
    const int c = (g0 + (lane & (lanes - 1))) * kWidth;
    float sum[kWidth] = {};
    if (c < s.head_dim) {
      for (int first = lane >> shift; first < tokens; first += kAhead * together) {
        float values[kAhead][kWidth];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {  // past the end: the last token, not added
          const int i = min(first + u * together, tokens - 1);
          load(map + place.pixel(cell.y0 + i / across, cell.x0 + i % across) * s.channels + c,
               values[u]);
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (first + u * together < tokens)
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sum[j] += values[u][j];
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      for (int other = lanes; other < kWarp; other *= 2)
        sum[j] += __shfl_xor_sync(kAllLanes, sum[j], other);
      sum[j] *= mean;
    }
    if (lane < lanes && c < padded) store<kWidth>(out + c, sum);
  }
  for (int c = padded + lane; c < d_step; c += kWarp) out[c] = 0.0f;
}

// Fills `regions` with the region of each landmark.
__device__ __forceinline__ void find_regions(const LandmarkJob& job, const Place& place,
                                             const LandmarkBuffers& b) {
  for (int j = int(threadIdx.x); j < job.m; j += int(blockDim.x)) {
    const Cell cell(job, j);
    b.regions[j] = place.region(cell.y0, cell.x0);
  }
}

// Fills `keys`, `queries` and `regions`; padding is zero. Ends with a barrier.
template <class T>
__device__ void find_landmarks(const LandmarkJob& job, const Place& place, const Head<T>& head,
                               const LandmarkBuffers& b, const WarpBuffers& w) {
  for (int i = w.warp; i < 2 * b.m4; i += w.warps) {
    const int landmark = i / 2;
    float* const out = (i % 2 ? b.keys : b.queries) + landmark * b.d_step;
    if (landmark < job.m) {
      with_width(job.width, [&](auto width) {
        pool<decltype(width)::value>(job, place, i % 2 ? head.k : head.q, landmark,
                                     i % 2 ? 1.0f : job.scale, out, b.d_step, w.lane);
      });
    } else {
      for (int c = w.lane; c < b.d_step; c += kWarp) out[c] = 0.0f;
    }
  }
  find_regions(job, place, b);
  __syncthreads();
}

}  // namespace
}  // namespace nystra::cuda
