// Exact attention in windows and between lists of tokens on tensor cores, for half and bfloat16
// with even head sizes to 64: the online softmax of FlashAttention-2.
//
// A block computes 16 queries per warp of one head in one window or list, against all keys in tiles
// of 64;
// the next tile is copied while one is used. The divisor of a row is the sum of the rounded
// weights, computed by the same instruction as the sum of the values, so that a single key is
// exact.
#pragma once

#include "async_copy.h"
#include "softmax_tokens.h"
#include "tensor_attention.h"

namespace nystra::cuda {
namespace {

constexpr int kTensorKeys = 64;  // per tile
constexpr int kStages = 2;       // buffered tiles
constexpr int kKeyTiles = 3;     // tiles whose keys are listed: used, being copied, next

// Keys whose scores a warp holds at once: too few registers are left for the scores of a whole tile
// if the sums of the values take 32 of a thread, or, where a bias has four strides, 16.
template <Area kArea>
__host__ __device__ constexpr int scored_keys(int steps) {
  return steps < (kArea == Area::kList ? 2 : 4) ? kTensorKeys : kTensorKeys / 2;
}

struct SoftmaxTensorJob : SoftmaxJob {
  int copy_bytes;  // 16 or 4
};

template <class T>
struct SoftmaxTensorLayout {
  T *keys, *values;  // (kStages, kTensorKeys, tensor_step)
  float* bias;       // (part of the table), times log2(e)
  Keys tiles;        // (kKeyTiles, kTensorKeys)
  int* outputs;      // (kMaxWarps, kQueries) pixels, kNoPixel beyond the window

  template <class Memory>
  __host__ __device__ SoftmaxTensorLayout(const SoftmaxJob& job, int steps, Memory& memory) {
    const int tile = kTensorKeys * tensor_step(steps);
    keys = memory.template take<T>(kStages * tile);
    values = memory.template take<T>(kStages * tile);
    bias = memory.template take<float>(job.stage_bias ? job.part : 0);
    tiles.pixels = memory.template take<int>(kKeyTiles * kTensorKeys);
    tiles.places = memory.template take<int>(kKeyTiles * kTensorKeys);
    tiles.regions = memory.template take<int>(kKeyTiles * kTensorKeys);
    tiles.factors = memory.template take<float>(factor_count(job, kKeyTiles * kTensorKeys));
    outputs = memory.template take<int>(kMaxWarps * kQueries);
  }

  __device__ Keys of_tile(int tile) const { return tiles.from(tile % kKeyTiles * kTensorKeys); }
};

// Starts to copy keys and values of a tile. Channels and tokens that do not exist become zeros.
template <Area kArea, int kSteps, int kBytes, class T>
__device__ __forceinline__ void copy_tile(const SoftmaxJob& job, const Sources<T>& in,
                                          const int* pixels, T* keys, T* values) {
  const Windows& s = job.shape;
  constexpr int kElements = kBytes / int(sizeof(T)), kLanes = 16 * kSteps / kElements;
  constexpr int kAll = kTensorKeys * kLanes / (kMaxWarps * kWarp);  // per thread, of four warps
  constexpr int kCopies = kAll < 4 ? kAll : 4;
  const int thread = thread_again();
  const int c = thread % kLanes * kElements, together = int(blockDim.x) / kLanes;
  const bool of_key = c < s.head_dim, of_value = c < s.value_dim;
  const char* const k = reinterpret_cast<const char*>(in.k + (of_key ? c : 0));
  const char* const v = reinterpret_cast<const char*>(in.v + (of_value ? c : 0));
  const unsigned stride = unsigned(job.k.token) * unsigned(sizeof(T));
  const unsigned v_stride =
      kArea == Area::kList ? unsigned(job.v.token) * unsigned(sizeof(T)) : stride;
#pragma unroll 1
  for (int first = thread / kLanes; first < kTensorKeys; first += kCopies * together)
#pragma unroll
    for (int u = 0; u < kCopies; ++u) {
      const int i = first + u * together, to = i * tensor_step(kSteps) + c, pixel = pixels[i];
      const uint64_t place = unsigned(max(pixel, 0));
      copy_async<kBytes>(keys + to, k + place * stride, of_key && pixel >= 0);
      copy_async<kBytes>(values + to, v + place * v_stride, of_value && pixel >= 0);
    }
}

// Applies scale, bias and mask: scores become logits times log2(e).
template <Area kArea, int kEights, class T>
__device__ __forceinline__ void make_logits(const float (&factors)[2], const Place& place,
                                            const Biases<kArea, T>& biases,
                                            const Query<kArea> (&queries)[2], const Keys& keys,
                                            int count, int in, float (&scores)[kEights][4]) {
  if (biases.exists())
    for_scores(in, scores, [&](int row, int key, float& score) {
      score = fmaf(score, score_factor<kArea>(factors[row], keys, key),
                   biases.staged(queries[row].place + keys.places[key]));
    });
  else
    for_scores(in, scores, [&](int row, int key, float& score) {
      score *= score_factor<kArea>(factors[row], keys, key);
    });
  if (kArea != Area::kList && place.cut)
    for_scores(in, scores, [&](int row, int key, float& score) {
      if (queries[row].region != keys.regions[key]) score += kApart;
    });
  if (count < 8 * kEights)
    for_scores(in, scores, [&](int, int key, float& score) {
      if (key >= count) score = -INFINITY;
    });
}

template <Area kArea, int kSteps, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 4)
    softmax_tensor_kernel(SoftmaxTensorJob job, const T* __restrict__ queries_of,
                          const T* __restrict__ keys_of, const T* __restrict__ values_of,
                          const T* __restrict__ table, T* __restrict__ out) {
  if constexpr (kTensorCores) {
    DYNAMIC_SHARED(memory);
    SharedMemory shared(memory);
    const Windows& s = job.shape;
    const SoftmaxTensorLayout<T> b(job, kSteps, shared);
    constexpr int kScored = scored_keys<kArea>(kSteps);
    const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
    const int group = lane / 4, in = lane % 4, queries_here = int(blockDim.x) / kWarp * kQueries;
    const int chunk = int(blockIdx.x) % job.chunks, rest = int(blockIdx.x) / job.chunks;
    const int head = rest % s.heads;
    const int image = rest / s.heads;  // of windows: the window
    const Place place(s, image);
    const Sources<T> from = {job.q.first<kArea>(queries_of, image, head),
                             job.k.first<kArea>(keys_of, image, head),
                             job.v.first<kArea>(values_of, image, head)};
    const int first_query = chunk * queries_here;
    const int last_query = min(first_query + queries_here, s.tokens) - 1;
    const int tiles = (s.keys + kTensorKeys - 1) / kTensorKeys;

    const auto copy = [&](int tile) {
      const int at = tile % kStages * kTensorKeys * tensor_step(kSteps);
      const int* const pixels = b.of_tile(tile).pixels;
      if (job.copy_bytes == 16)
        copy_tile<kArea, kSteps, 16>(job, from, pixels, b.keys + at, b.values + at);
      else
        copy_tile<kArea, kSteps, 4>(job, from, pixels, b.keys + at, b.values + at);
      commit_copies();
    };
    for (int tile = 0; tile < min(tiles, 2); ++tile)
      find_keys<kArea>(job, place, from.k, tile * kTensorKeys, kTensorKeys, b.of_tile(tile));
    __syncthreads();
    copy(0);

    const int token = first_query + warp * kQueries + group;  // of the lane's first row
    const int low = min(token, last_query), high = min(token + 8, last_query);
    const int pixels[2] = {query_pixel<kArea>(place, low), query_pixel<kArea>(place, high)};
    const Query<kArea> queries[2] = {{job, place, low, first_query},
                                     {job, place, high, first_query}};
    const float factors[2] = {query_factor<kArea>(job, from.q, head, pixels[0]),
                              query_factor<kArea>(job, from.q, head, pixels[1])};
    uint32_t q[kSteps][4];
    load_queries(from.q, job.q.token, s.head_dim, pixels[0], pixels[1], in, q);
    if (in == 0) {  // not kept in registers, which the loop needs
      b.outputs[warp * kQueries + group] = token <= last_query ? pixels[0] : kNoPixel;
      b.outputs[warp * kQueries + group + 8] = token + 8 <= last_query ? pixels[1] : kNoPixel;
    }
    const Biases<kArea, T> biases(job, table, image, head, first_query,
                                  last_query + 1 - first_query, b.bias);

    float sums[2 * kSteps][4] = {}, totals[4] = {}, maxima[2] = {-INFINITY, -INFINITY};
    for (int tile = 0; tile < tiles; ++tile) {
      wait_for_copies<0>();
      __syncthreads();  // the tile is complete, and the previous one is no longer read
      if (tile + 1 < tiles) copy(tile + 1);
      if (tile + 2 < tiles)
        find_keys<kArea>(job, place, from.k, (tile + 2) * kTensorKeys, kTensorKeys,
                         b.of_tile(tile + 2));
      const int at = tile % kStages * kTensorKeys * tensor_step(kSteps);
      const int again = thread_again() % kWarp;
      const int count = s.keys - tile * kTensorKeys;
#pragma unroll 1
      for (int first = 0; first < min(count, kTensorKeys); first += kScored) {
        const int from_key = at + first * tensor_step(kSteps);
        float scores[kScored / 8][4] = {};
        score_keys(q, b.keys + from_key, again, scores);
        make_logits(factors, place, biases, queries, b.of_tile(tile).from(first), count - first,
                    again % 4, scores);
        make_weights<kArea == Area::kList>(scores, maxima, sums, totals);
        add_values<kSteps>(scores, b.values + from_key, again, sums, totals);
      }
    }

#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int pixel = b.outputs[warp * kQueries + group + 8 * row];
      if (pixel == kNoPixel) continue;
      T* const to = job.out.first<kArea>(out, image, head) + pixel * job.out.token;
      const float factor = last_factor<kArea>(totals[2 * row]);
#pragma unroll
      for (int c = 0; c < 2 * kSteps; ++c) {
        const float values[2] = {sums[c][2 * row] * factor, sums[c][2 * row + 1] * factor};
        if (8 * c + 2 * in < s.value_dim) store<2>(to + 8 * c + 2 * in, values);
      }
    }
  }
}

}  // namespace
}  // namespace nystra::cuda
