// Exact attention in windows with an online softmax: NystraWindowSoftmax, and with kAround
// NystraWindowOverlap, whose key windows extend beyond their windows by margins. Keys beyond the
// map are zeros.
//
// A block does 16 queries a warp of one head in one window, against all keys in tiles of 32; 8
// lanes share 4 queries. Scores exist for one tile only; regions and the places in the bias table
// come from coordinates. A block writes at most 64 value channels: more of them are other blocks,
// which compute the scores again.
//
// Floor, N tokens a window, S bytes an element: (2d + 2e) S bytes a token and head if the caches
// keep a window's keys and values; 2 N (d + e) FLOPs and N exponentials a token and head. At
// window 32 and d = e = 32: 131,072 FLOPs for 512 bytes of float: arithmetic sets the time.
#pragma once

#include <cmath>

#include "products.h"
#include "windows.h"

namespace nystra::cuda {
namespace {

constexpr int kQueries = 16;  // of a warp
constexpr int kMaxWarps = 4, kParts = kChunk / 32;
constexpr int kLoads = 4;  // of a thread in flight: four warps load a tile of 64 channels in one go

struct Job {
  Windows shape;
  int chunks, parts;  // of the queries; of the value channels
  int64_t blocks;
  int width;        // of vector accesses
  int step;         // of tiles of channels
  bool stage_bias;  // the head's column of the table fits into shared memory
  float scale;      // times log2(e)
};

struct Layout {
  float *queries, *keys, *values;  // (16 warps, step), (kTokens, step) twice
  float* weights;                  // (16 warps, row_step(kTokens))
  float* bias;                     // the head's column of the table, times log2(e)
  int *query_pixels, *key_pixels;

  template <class Memory>
  __host__ __device__ Layout(const Windows& s, int step, int warps, bool with_bias,
                             Memory& memory) {
    queries = memory.template take<float>(kQueries * warps * step);
    keys = memory.template take<float>(kTokens * step);
    values = memory.template take<float>(kTokens * step);
    weights = memory.template take<float>(kQueries * warps * row_step(kTokens));
    bias = memory.template take<float>(with_bias ? s.bias_rows : 0);
    query_pixels = memory.template take<int>(kQueries * warps);
    key_pixels = memory.template take<int>(kTokens);
  }
};

// Tiles of channels of a block's tokens, in shared memory; all maps are loaded together.
template <bool kAround, class T, int kMaps>
__device__ __forceinline__ void stage_tokens(const Job& job, const T* const (&maps)[kMaps],
                                             const int* pixels, int rows, int count,
                                             const int (&channels)[kMaps],
                                             float* const (&tiles)[kMaps]) {
  with_width(job.width, [&](auto width) {
    stage<decltype(width)::value, kLoads, kAround>(maps, job.shape.channels, pixels, rows, count,
                                                   channels, tiles, job.step, int(threadIdx.x),
                                                   int(blockDim.x));
  });
}

// The pixel of a key of a window, kNoPixel beyond the map.
template <bool kAround>
__device__ __forceinline__ int key_pixel(const Windows& s, const Place& place, int key) {
  if (!kAround) return place.pixel(key);
  const int y = place.top + key / s.key_w - s.margin_h, x = place.left + key % s.key_w - s.margin_w;
  const bool inside = y >= 0 && y < s.height && x >= 0 && x < s.width;
  return inside ? place.image + y * s.width + x : kNoPixel;
}

// Adds bias and mask to the logits of 4 queries with keys first + column + 8 j.
template <bool kAround, class T>
__device__ __forceinline__ void bend(const Job& job, const Place& place, const T* table,
                                     const float* bias, int head, const int (&queries)[4],
                                     int first, Result<4>& logits) {
  const Windows& s = job.shape;
  const int key_w = kAround ? s.key_w : s.window_w, key_h = kAround ? s.key_h : s.window_h;
  const int entries_w = s.window_w + key_w - 1, last = (kAround ? s.keys : s.tokens) - 1;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int key = min(first + 8 * j, last), ky = key / key_w, kx = key % key_w;
    const int key_region = place.region(ky, kx);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int qy = queries[i] / s.window_w, qx = queries[i] % s.window_w;
      if (table != nullptr) {
        const int entry = (qy - ky + key_h - 1) * entries_w + qx - kx + key_w - 1;
        logits.v[i][j] += job.stage_bias
                              ? bias[entry]
                              : to_float(table[int64_t(entry) * s.heads + head]) * kLog2E;
      }
      if (place.cut && place.region(qy, qx) != key_region) logits.v[i][j] += kApart;
    }
  }
}

template <bool kAround, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 3)
    window_softmax_kernel(Job job, const T* __restrict__ qkv, const T* __restrict__ table,
                          T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  const Windows& s = job.shape;
  const int thread = int(threadIdx.x), threads = int(blockDim.x), warps = threads / kWarp;
  const Layout b(s, job.step, warps, job.stage_bias, shared);
  const int lane = thread % kWarp, warp = thread / kWarp, group = lane / 8, column = lane % 8;
  const int part = int(blockIdx.x) % job.parts, rest = int(blockIdx.x) / job.parts;
  const int chunk = rest % job.chunks, head = rest / job.chunks % s.heads;
  const Place place(s, rest / job.chunks / s.heads);
  const Head<T> in(s, qkv, head);
  const int first_query = chunk * kQueries * warps,
            query_count = min(kQueries * warps, s.tokens - first_query);
  const int first_channel = part * kChunk, channels = min(kChunk, s.value_dim - first_channel);
  const bool bent = table != nullptr || place.cut, one_chunk = s.head_dim <= kChunk;
  const int keys = kAround ? s.keys : s.tokens;

  const int row = warp * kQueries + group * 4;  // of this thread's first query
  int queries[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) queries[i] = min(first_query + row + i, s.tokens - 1);
  for (int i = thread; i < kQueries * warps; i += threads)
    b.query_pixels[i] = place.pixel(min(first_query + i, s.tokens - 1));
  if (job.stage_bias)
    for (int i = thread; i < s.bias_rows; i += threads)
      b.bias[i] = to_float(table[int64_t(i) * s.heads + head]) * kLog2E;
  __syncthreads();
  if (one_chunk)
    stage_tokens<false, T, 1>(job, {in.q}, b.query_pixels, kQueries * warps, query_count,
                              {s.head_dim}, {b.queries});

  Result<4> sums[kParts];  // 4 queries; channels 4 column + 32 part ... + 3
#pragma unroll
  for (int p = 0; p < kParts; ++p) sums[p] = zero_result<4>();
  float maxima[4], totals[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) maxima[i] = -INFINITY, totals[i] = 0.0f;

  for (int first = 0; first < keys; first += kTokens) {
    const int count = min(kTokens, keys - first);
    if (thread < kTokens)
      b.key_pixels[thread] = key_pixel<kAround>(s, place, min(first + thread, keys - 1));
    __syncthreads();  // and the tiles are free

    Result<4> scores = zero_result<4>();
    for (int c = 0; c < s.head_dim; c += kChunk) {
      const int n = min(kChunk, s.head_dim - c);
      if (c > 0) __syncthreads();  // the tiles are free
      if (c == 0)
        stage_tokens<kAround, T, 2>(job, {in.k, in.v + first_channel}, b.key_pixels, kTokens, count,
                                    {n, channels}, {b.keys, b.values});
      else
        stage_tokens<kAround, T, 1>(job, {in.k + c}, b.key_pixels, kTokens, count, {n}, {b.keys});
      if (!one_chunk)
        stage_tokens<false, T, 1>(job, {in.q + c}, b.query_pixels, kQueries * warps, query_count,
                                  {n}, {b.queries});
      __syncthreads();
      add_rows_by_rows(scores, b.queries + row * job.step, job.step, b.keys + column * job.step,
                       8 * job.step, round_up(n, 4));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores.v[i][j] *= job.scale;
    if (bent) bend<kAround>(job, place, table, b.bias, head, queries, first + column, scores);

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float largest = maxima[i];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (column + 8 * j < count) largest = fmaxf(largest, scores.v[i][j]);
#pragma unroll
      for (int lanes = 4; lanes > 0; lanes /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
      const float correction = exp2f(maxima[i] - largest);
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = column + 8 * j < count ? exp2f(scores.v[i][j] - largest) : 0.0f;
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
    T* const token =
        out + b.query_pixels[row + i] * s.out_channels + head * s.value_dim + first_channel;
    const float factor = 1.0f / total;
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

int64_t layout_bytes(const Job& job, int warps, bool with_bias) {
  Counter counter;
  Layout(job.shape, job.step, warps, with_bias, counter);
  return counter.bytes();
}

template <bool kAround, class T>
Status enqueue(const WindowShape& shape, const T* qkv, const T* table, T* out, cudaStream_t stream,
               const LaunchLimits& limits) {
  Job job{};
  job.shape = windows(shape);
  const Windows& s = job.shape;
  job.step = row_step(max(min(s.head_dim, kChunk), min(s.value_dim, kChunk)));
  job.width = common_width(shape.head_dim, shape.value_dim, qkv, out, sizeof(T));
  job.scale = shape.scale * kLog2E;
  int warps = int(limits.warps);
  while (warps > 1 && (kQueries * warps / 2 >= s.tokens ||
                       layout_bytes(job, warps, false) > limits.shared_bytes))
    warps /= 2;
  if (layout_bytes(job, warps, false) > limits.shared_bytes) return Status::kUnsupported;
  job.stage_bias = table != nullptr && shape.bias_rows() < limits.shared_bytes &&
                   layout_bytes(job, warps, true) <= limits.shared_bytes;
  job.chunks = (s.tokens + kQueries * warps - 1) / (kQueries * warps);
  job.parts = (s.value_dim + kChunk - 1) / kChunk;
  job.blocks = shape.windows() * shape.heads * job.chunks * job.parts;
  if (job.blocks > 0x7fffffff) return Status::kUnsupported;
  const int64_t bytes = layout_bytes(job, warps, job.stage_bias);
  const cudaError_t error =
      launch(window_softmax_kernel<kAround, T>, dim3(static_cast<unsigned>(job.blocks)),
             dim3(unsigned(warps * kWarp)), size_t(bytes), stream, job, qkv, table, out);
  return error == cudaSuccess ? Status::kOk : Status::kLaunch;
}

template <bool kAround>
Status softmax_windows(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                       void* out, Stream stream, const LaunchLimits& limits) {
  if (shape.windows() == 0) return Status::kOk;
  if (!countable(shape)) return Status::kUnsupported;
  return with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    return enqueue<kAround>(shape, static_cast<const T*>(qkv), static_cast<const T*>(bias_table),
                            static_cast<T*>(out), static_cast<cudaStream_t>(stream), limits);
  });
}

}  // namespace
}  // namespace nystra::cuda
