// Exact attention with an online softmax: in windows (NystraWindowSoftmax), in windows with the
// keys around them, zeros beyond the map (NystraWindowOverlap), by cosines (NystraWindowCosine),
// and between lists of tokens (NystraAttention).
//
// A block computes 16 queries per warp of one head in one window or list, against all keys in tiles
// of 32; 8 lanes share 4 queries. Scores are stored for one tile only; regions and indices into the
// bias table are computed from coordinates. A block writes at most 64 value channels; if there are
// more, other blocks compute the scores again.
//
// Cost, with N tokens per window and S bytes per element: (2d + 2e) S bytes per token and head if
// the keys and values of a window stay in the caches; 2 N (d + e) FLOPs and N exponentials per
// token and head. At window 32 and d = e = 32 that is 131,072 FLOPs for 512 bytes of float, so the
// kernel is bound by arithmetic.
#pragma once

#include <cmath>

#include "products.h"
#include "softmax_tokens.h"

namespace nystra::cuda {
namespace {

constexpr int kParts = kChunk / 32;
constexpr int kLoads = 4;  // per thread: four warps load a tile of 64 channels at once

struct SoftmaxWindowJob : SoftmaxJob {
  int parts;  // into which the value channels are divided
  int width;  // elements per vector access
  int step;   // floats between the rows of a tile
};

struct SoftmaxWindowLayout {
  float *queries, *keys, *values;  // (16 warps, step), (kTokens, step) twice
  float* weights;                  // (16 warps, row_step(kTokens))
  float* bias;                     // (part of the table), times log2(e)
  int* query_pixels;
  Keys tiles;  // (2, kTokens): of the current and the previous tile

  template <class Memory>
  __host__ __device__ SoftmaxWindowLayout(const SoftmaxWindowJob& job, int warps, Memory& memory) {
    queries = memory.template take<float>(kQueries * warps * job.step);
    keys = memory.template take<float>(kTokens * job.step);
    values = memory.template take<float>(kTokens * job.step);
    weights = memory.template take<float>(kQueries * warps * row_step(kTokens));
    bias = memory.template take<float>(job.stage_bias ? job.part : 0);
    query_pixels = memory.template take<int>(kQueries * warps);
    tiles.pixels = memory.template take<int>(2 * kTokens);
    tiles.places = memory.template take<int>(2 * kTokens);
    tiles.regions = memory.template take<int>(2 * kTokens);
    tiles.factors = memory.template take<float>(factor_count(job, 2 * kTokens));
  }
};

// Loads tiles of channels of the block's tokens into shared memory, for all maps together.
template <bool kHoles, class T, int kMaps>
__device__ __forceinline__ void stage_tokens(const SoftmaxWindowJob& job,
                                             const T* const (&maps)[kMaps],
                                             const int64_t (&strides)[kMaps], const int* pixels,
                                             int rows, int count, const int (&channels)[kMaps],
                                             float* const (&tiles)[kMaps]) {
  with_width(job.width, [&](auto width) {
    stage<decltype(width)::value, kLoads, kHoles>(maps, strides, pixels, rows, count, channels,
                                                  tiles, job.step, int(threadIdx.x),
                                                  int(blockDim.x));
  });
}

// Adds bias and mask to the logits of 4 queries with keys column + 8 j of a tile.
template <Area kArea, class T>
__device__ __forceinline__ void bend(const Place& place, const Biases<kArea, T>& biases,
                                     const Query<kArea> (&queries)[4], const Keys& keys, int column,
                                     Result<4>& logits) {
  if (biases.exists())
    biases.with([&](const auto& bias) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          logits.v[i][j] += bias(queries[i].place + keys.places[column + 8 * j]);
    });
  if (kArea != Area::kList && place.cut)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (queries[i].region != keys.regions[column + 8 * j]) logits.v[i][j] += kApart;
}

template <Area kArea, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 3)
    softmax_kernel(SoftmaxWindowJob job, const T* __restrict__ q, const T* __restrict__ k,
                   const T* __restrict__ v, const T* __restrict__ table, T* __restrict__ out) {
  constexpr bool kHoles = kArea == Area::kAround;
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  const Windows& s = job.shape;
  const int thread = int(threadIdx.x), threads = int(blockDim.x), warps = threads / kWarp;
  const SoftmaxWindowLayout b(job, warps, shared);
  const int lane = thread % kWarp, warp = thread / kWarp, group = lane / 8, column = lane % 8;
  const int part = int(blockIdx.x) % job.parts, rest = int(blockIdx.x) / job.parts;
  const int chunk = rest % job.chunks, head = rest / job.chunks % s.heads;
  const int image = rest / job.chunks / s.heads;  // of windows: the window
  const Place place(s, image);
  const Sources<T> in = {job.q.first<kArea>(q, image, head), job.k.first<kArea>(k, image, head),
                         job.v.first<kArea>(v, image, head)};
  const int64_t v_stride = kArea == Area::kList ? job.v.token : job.k.token;
  const int first_query = chunk * kQueries * warps,
            query_count = min(kQueries * warps, s.tokens - first_query);
  const int first_channel = part * kChunk, channels = min(kChunk, s.value_dim - first_channel);
  const bool one_chunk = s.head_dim <= kChunk;

  const int row = warp * kQueries + group * 4;  // of this thread's first query
  const auto query = [&](int i) {
    return Query<kArea>(job, place, min(first_query + row + i, s.tokens - 1), first_query);
  };
  const Query<kArea> queries[4] = {query(0), query(1), query(2), query(3)};
  const auto factor = [&](int i) {
    const int token = min(first_query + row + i, s.tokens - 1);
    return query_factor<kArea>(job, in.q, head, query_pixel<kArea>(place, token));
  };
  const float factors[4] = {factor(0), factor(1), factor(2), factor(3)};
  for (int i = thread; i < kQueries * warps; i += threads)
    b.query_pixels[i] = query_pixel<kArea>(place, min(first_query + i, s.tokens - 1));
  const Biases<kArea, T> biases(job, table, image, head, first_query, query_count, b.bias);
  __syncthreads();
  if (one_chunk)
    stage_tokens<false, T, 1>(job, {in.q}, {job.q.token}, b.query_pixels, kQueries * warps,
                              query_count, {s.head_dim}, {b.queries});

  Result<4> sums[kParts];  // 4 queries; channels 4 column + 32 part ... + 3
#pragma unroll
  for (int p = 0; p < kParts; ++p) sums[p] = zero_result<4>();
  float maxima[4], totals[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) maxima[i] = -INFINITY, totals[i] = 0.0f;

  for (int first = 0; first < s.keys; first += kTokens) {
    const int count = min(kTokens, s.keys - first);
    const int slot = first % (2 * kTokens);
    const Keys keys = b.tiles.from(slot);
    find_keys<kArea>(job, place, in.k, first, kTokens, keys);
    __syncthreads();  // and the tiles are no longer read

    Result<4> scores = zero_result<4>();
    for (int c = 0; c < s.head_dim; c += kChunk) {
      const int n = min(kChunk, s.head_dim - c);
      if (c > 0) __syncthreads();  // the tiles are no longer read
      if (c == 0)
        stage_tokens<kHoles, T, 2>(job, {in.k, in.v + first_channel}, {job.k.token, v_stride},
                                   keys.pixels, kTokens, count, {n, channels}, {b.keys, b.values});
      else
        stage_tokens<kHoles, T, 1>(job, {in.k + c}, {job.k.token}, keys.pixels, kTokens, count, {n},
                                   {b.keys});
      if (!one_chunk)
        stage_tokens<false, T, 1>(job, {in.q + c}, {job.q.token}, b.query_pixels, kQueries * warps,
                                  query_count, {n}, {b.queries});
      __syncthreads();
      add_rows_by_rows(scores, b.queries + row * job.step, job.step, b.keys + column * job.step,
                       8 * job.step, round_up(n, 4));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        scores.v[i][j] *= score_factor<kArea>(factors[i], keys, column + 8 * j);
    bend(place, biases, queries, keys, column, scores);

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float largest = maxima[i];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (column + 8 * j < count) largest = fmaxf(largest, scores.v[i][j]);
#pragma unroll
      for (int lanes = 4; lanes > 0; lanes /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
      const float base = kArea == Area::kList && largest == -INFINITY ? 0.0f : largest;
      const float correction = power_of_two(maxima[i] - base);
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = column + 8 * j < count ? power_of_two(scores.v[i][j] - base) : 0.0f;
        total += weight;
        b.weights[(row + i) * row_step(kTokens) + column + 8 * j] = weight;
      }
      maxima[i] = largest;
      totals[i] = totals[i] * correction + total;
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[p].v[i][j] *= correction;
    }
    __syncwarp();
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      if (4 * column + 32 * p < channels)
        add_rows_by_columns(sums[p], b.weights + row * row_step(kTokens), row_step(kTokens),
                            b.values + 4 * column + 32 * p, job.step, round_up(count, 4));
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float total = totals[i];
#pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) total += __shfl_xor_sync(kAllLanes, total, lanes);
    if (row + i >= query_count) continue;
    T* const token = job.out.first<kArea>(out, image, head) +
                     b.query_pixels[row + i] * job.out.token + first_channel;
    const float factor = last_factor<kArea>(total);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int c = 4 * column + 32 * p;
      if (c >= channels) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[p].v[i][j] *= factor;
      write4(token, c, channels, job.width, sums[p].v[i]);
    }
  }
}

}  // namespace
}  // namespace nystra::cuda
