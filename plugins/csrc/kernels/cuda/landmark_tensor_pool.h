// Landmarks on tensor cores: sums over the tokens of cells, for half and bfloat16.
//
// One product of 16 bits an entry adds 16 tokens to the sums of 16 landmarks in 8 channels. Its
// left factor says which tokens lie in which cells, 1 or 0, and is the same for q and k; its right
// factor is a map as it is, read like the values of landmark_tensor.h. Products are exact, sums
// float. A token that is NaN makes all landmarks NaN in its channel, and so their pseudoinverse,
// which one such landmark would do too.
#pragma once

#include "landmark_pool.h"
#include "landmark_tensor.h"

namespace nystra::cuda {
namespace {

// Bit j: place (y, x) of the window lies in the cell of landmark j; cells may overlap.
__device__ __forceinline__ unsigned cells_of(const LandmarkJob& job, int y, int x) {
  unsigned across = 0, cells = 0;
  for (int j = 0; j < job.cols; ++j)
    if (in_cell(x, j, job.shape.window_w, job.cols)) across |= 1u << j;
  for (int i = 0; i < job.rows; ++i)
    if (in_cell(y, i, job.shape.window_h, job.rows)) cells |= across << (i * job.cols);
  return cells;
}

// Returns the lower halves of two words, or the upper ones.
__device__ __forceinline__ uint32_t halves(uint32_t first, uint32_t second, bool upper) {
  return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
}

// Computes `pooled`, the sums over the warp's tokens of q and then of k.
template <class T>
__device__ __forceinline__ void pool_tokens(const LandmarkJob& job, const Place& place,
                                            const Head<T>& head, const LandmarkBuffers& b,
                                            const WarpBuffers& w) {
  const TensorLane at(w.lane);
  const T* const maps[2] = {head.q, head.k};
  const uint32_t one = word_of<T>(1.0f, 0.0f);
  float sums[2][kChannelParts][4] = {};
  for_tensor_tiles<Share::kEqual>(job, place, w, [&](const TensorTile& tile) {
    uint32_t words[2][kFold][2][2];
    with_wide(job.wide, [&](auto wide) {
#pragma unroll
      for (int t = 0; t < kFold; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int pixel = tile.pixel(8 * t + 2 * at.in + i);
#pragma unroll
          for (int n = 0; n < 2; ++n)
            load_words<decltype(wide)::value>(token_at(job, maps[n], pixel), 4 * at.group,
                                              job.shape.head_dim, words[n][t][i]);
        }
    });
    const unsigned own = w.lane < tile.count ? cells_of(job, tile.own_y, tile.own_x) : 0u;
    const unsigned two = own | __shfl_down_sync(kAllLanes, own, 1) << 16;
#pragma unroll
    for (int t = 0; t < kFold; t += 2) {  // 16 tokens
      uint32_t cells[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned of = __shfl_sync(kAllLanes, two, 8 * (t + i) + 2 * at.in) >> at.group;
        cells[2 * i] = (of & 0x10001u) * one;
        cells[2 * i + 1] = (of >> 8 & 0x10001u) * one;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          multiply_add_16<T>(sums[n][c], cells,
                             halves(words[n][t][0][c / 2], words[n][t][1][c / 2], c % 2),
                             halves(words[n][t + 1][0][c / 2], words[n][t + 1][1][c / 2], c % 2));
    }
  });
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = at.group + i / 2 * 8, column = 4 * (2 * at.in + i % 2);
      const float part[4] = {sums[n][0][i], sums[n][1][i], sums[n][2][i], sums[n][3][i]};
      if (row < b.m4 && column < round_up(job.shape.head_dim, 4))
        store4(b.pooled + ((2 * w.warp + n) * b.m4 + row) * b.d_step + column, part);
    }
}

// Fills `keys`, `queries` and `regions`, with zeros in the padding that is read. Ends with a
// barrier.
template <class T>
__device__ __forceinline__ void find_tensor_landmarks(const LandmarkJob& job, const Place& place,
                                                      const Head<T>& head, const LandmarkBuffers& b,
                                                      const WarpBuffers& w) {
  constexpr int kGroups = kTensorChannels / 4, kUnits = kTensorLandmarks * kGroups;
  pool_tokens(job, place, head, b, w);
  find_regions(job, place, b);
  float* const areas = b.combined;  // which is not in use yet
  for (int j = int(threadIdx.x); j < job.m; j += int(blockDim.x)) areas[j] = Cell(job, j).area();
  __syncthreads();
  for (int unit = int(threadIdx.x); unit < 2 * kUnits; unit += int(blockDim.x)) {
    const int n = unit / kUnits, row = unit % kUnits / kGroups, c = unit % kGroups * 4;
    if (row >= b.m4 || c >= round_up(job.shape.head_dim, 4)) continue;
    const float mean = row < job.m ? (n == 0 ? job.scale : 1.0f) / areas[row] : 0.0f;
    float sum[4] = {};
    for (int i = 0; i < w.warps && row < job.m; ++i) {
      const float4 part = load4(b.pooled + ((2 * i + n) * b.m4 + row) * b.d_step + c);
      sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] *= mean;
    store4((n == 0 ? b.queries : b.keys) + row * b.d_step + c, sum);
  }
  __syncthreads();
}

}  // namespace
}  // namespace nystra::cuda
