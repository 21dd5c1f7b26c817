// Code shared by both Nystrom forms: the buffers of a window, and the passes over its tokens in
// tiles of 32.
//
// A thread block computes one head of one window at a time. In both passes over the tokens each
// warp processes its own tiles (every warps-th), with its own tile and score buffers, and
// synchronizes with the other warps only between the passes. Up to 16 landmarks the first warp
// computes the pseudoinverse while the others begin the first pass, and then joins them; above, the
// whole block computes it before the pass. Landmarks, sums and the pseudoinverse are in shared
// memory if they fit, otherwise in the block's part of the workspace.
#pragma once

#include <cmath>

#include "pseudoinverse.h"
#include "windows.h"

namespace nystra::cuda {
namespace {

constexpr int kMaxWarps = 4;
constexpr int kTensorLandmarks = 16, kTensorChannels = 32;  // limits on tensor cores
constexpr int kFragments = 20;      // in shared memory, on tensor cores; four words per lane
constexpr int kQueryFragments = 8;  // of these, used by the first pass

struct LandmarkJob {
  Windows shape;
  int64_t tasks;  // windows times heads
  int rows, cols, m, iterations;
  int last;     // in the first pass the first warp takes the tiles from this one on, since it may
                // have to compute the pseudoinverse before
  float scale;  // times log2(e)
  float threshold, guard;  // of the kernel form; threshold times log2(e)
  int width;               // elements per vector access
  bool wide;               // accesses of 8 elements are aligned
  bool tensor;             // the passes run on tensor cores
  int tile_step;
  unsigned* maxima;  // of the whole batch, or null
  bool only_maxima;  // only compute the maxima of the batch
  unsigned char* workspace;
  int64_t block_bytes;  // workspace of one block
};

__host__ __device__ inline int padded_landmarks(const LandmarkJob& job) {
  return round_up(job.m, 4);
}

struct LandmarkBuffers {
  int m4, d_step, e_step, m_step;
  float *keys, *queries;  // landmarks (m4, d_step); queries times scale and log2(e)
  float* product;         // (m4, e_step) Z G_U V; takes the place of `queries`
  float* inverse;         // (m4, m_step) Z
  float* pooled;     // (warps, 2, m4, d_step) on tensor cores: sums over each warp's tokens, in
                     // the memory that values and scores use later
  float* values;     // (warps, m4, e_step) G_U V over each warp's tokens; later, in the first, over
                     // all tokens
  float* scores;     // (warps, kTokens, m_step) tokens by landmarks; not on tensor cores, where
                     // fragments and the pseudoinverse use this memory
  float* tiles;      // (warps, kTokens, tile_step) a chunk of channels of q, k or v; not on
                     // tensor cores
  float* rows;       // (warps, 3, m4) totals per landmark; of a softmax also maxima and corrections
  float* combined;   // (m4) used only by the kernel form
  float* factors;    // (warps, kTokens); not on tensor cores
  int* pixels;       // (warps, kTokens); not on tensor cores
  int* regions;      // (m4) of landmarks
  PinvBuffers pinv;  // except `inverse`, they share memory with scores and tiles

  template <class Big, class Small>
  __host__ __device__ LandmarkBuffers(const LandmarkJob& job, int warps, Big& big, Small& small)
      : m4(padded_landmarks(job)),
        d_step(row_step(job.shape.head_dim)),
        e_step(row_step(job.shape.value_dim)),
        m_step(row_step(job.m)) {
    keys = big.template take<float>(m4 * d_step);
    queries = big.template take<float>(m4 * (d_step > e_step ? d_step : e_step));
    product = queries;
    inverse = big.template take<float>(m4 * m_step);
    const int tokens = job.tensor ? 0 : warps * kTokens;  // tensor cores keep them in registers
    const int of_values = warps * m4 * e_step, of_pooled = 2 * warps * m4 * d_step;
    if (job.tensor) {
      const int both = of_values + kFragments * kWarp * 4;
      pooled = small.template take<float>(both > of_pooled ? both : of_pooled);
      values = pooled;
      scores = values + of_values;
    } else {
      pooled = nullptr;
      values = big.template take<float>(of_values);
      scores = small.template take<float>(tokens * m_step);
    }
    tiles = small.template take<float>(tokens * job.tile_step);
    rows = small.template take<float>(warps * 3 * m4);
    combined = small.template take<float>(m4);
    factors = small.template take<float>(tokens);
    pixels = small.template take<int>(tokens);
    regions = small.template take<int>(m4);
    // A single warp needs memory that the other warps do not use at that time: its own scores and
    // tile or, on tensor cores, the memory after the fragments of the queries.
    const bool by_warp = job.tensor || job.m <= kWarpMatrix;
    const int matrix = m4 * m_step, tile = by_warp ? kTokens * job.tile_step : 0;
    float* matrices[4];
    for (int i = 0, used = 0; i < 4; ++i) {
      if (job.tensor)
        matrices[i] = scores + kQueryFragments * kWarp * 4 + i * matrix;
      else if (by_warp ? (i + 1) * m4 <= kTokens : i < warps && m4 <= kTokens)
        matrices[i] = scores + i * (by_warp ? matrix : kTokens * m_step);
      else if (used + matrix <= tile)
        matrices[i] = tiles + used, used += matrix;
      else
        matrices[i] = big.template take<float>(matrix);
    }
    pinv = {matrices[0], inverse, matrices[1], matrices[2],
            matrices[3], rows,    rows + m4,   rows + 2 * m4};
  }
};

// The part of the buffers that belongs to a warp. Each step constructs it again, so that its
// addresses do not occupy registers during the other steps.
struct WarpBuffers {
  int lane, warp, warps;
  float *values, *scores, *tile, *rows, *factors;
  int* pixels;

  __device__ WarpBuffers(const LandmarkJob& job, const LandmarkBuffers& b)
      : lane(int(thread_again() % kWarp)),
        warp(int(thread_again() / kWarp)),
        warps(int(blockDim.x) / kWarp),
        values(b.values + warp * b.m4 * b.e_step),
        scores(b.scores + warp * kTokens * b.m_step),
        tile(b.tiles + warp * kTokens * job.tile_step),
        rows(b.rows + warp * 3 * b.m4),
        factors(b.factors + warp * kTokens),
        pixels(b.pixels + warp * kTokens) {}
};

// Computes pinv.a = finish(q_m . k_m, row, column), with 0 in the padding. Ends with a barrier.
template <class F>
__device__ __forceinline__ void fill_core(const LandmarkJob& job, const LandmarkBuffers& b,
                                          const F& finish) {
  const int across = b.m4 / 4;
  for (int unit = int(threadIdx.x); unit < across * across; unit += int(blockDim.x)) {
    const int row = unit / across * 4, column = unit % across * 4;
    Result<4> r = zero_result<4>();
    add_rows_by_rows(r, b.queries + row * b.d_step, b.d_step, b.keys + column * b.d_step, b.d_step,
                     round_up(job.shape.head_dim, 4));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        r.v[i][j] =
            row + i < job.m && column + j < job.m ? finish(r.v[i][j], row + i, column + j) : 0.0f;
      store4(b.pinv.a + (row + i) * b.m_step + column, r.v[i]);
    }
  }
  __syncthreads();
}

// Computes inverse = Z of pinv.a with a group of threads. Ends with a barrier of the group.
template <class Group>
__device__ __forceinline__ void invert_core(const Group& group, const LandmarkJob& job,
                                            const Place& place, const LandmarkBuffers& b) {
  PinvBuffers p = b.pinv;
  absolute_sums(group, p, job.m);
  start_value(group, p, job.m, job.maxima, place.cut ? b.regions : nullptr);
  iterate(group, p, job.m, job.iterations);
  if (p.z == b.inverse) return;
  for (int e = group.thread(); e < b.m4 * b.m_step; e += group.threads()) b.inverse[e] = p.z[e];
  group.sync();
}

// Loads a chunk of the channels of the warp's tile into shared memory.
template <class T>
__device__ __forceinline__ void stage_tile(const LandmarkJob& job, const T* map, int count,
                                           int channels, const WarpBuffers& w) {
  __syncwarp();  // the previous contents are no longer read
  with_width(job.width, [&](auto width) {
    stage<decltype(width)::value, kAhead>(map, job.shape.channels, w.pixels, kTokens, count,
                                          channels, w.tile, job.tile_step, w.lane, kWarp);
  });
  __syncwarp();
}

// How tiles are assigned to warps. kEqual: every warps-th to each warp. kFirstPass: the tiles from
// job.last on to the first warp, the others in turn to the other warps.
enum class Share { kEqual, kFirstPass };

// Calls f(first token) for each tile of the warp.
template <Share kShare, class F>
__device__ __forceinline__ void for_turns(const LandmarkJob& job, const WarpBuffers& w,
                                          const F& f) {
  const int tokens = job.shape.tokens;
  if constexpr (kShare == Share::kEqual) {
    for (int first = w.warp * kTokens; first < tokens; first += w.warps * kTokens) f(first);
  } else {
    const auto inverts = [] { return thread_again() < kWarp; };  // not kept in a register
    for (int tile = inverts() ? job.last : w.warp - 1;
         inverts() ? tile * kTokens < tokens : tile < job.last;
         tile += inverts() ? 1 : int(blockDim.x) / kWarp - 1)
      f(tile * kTokens);
  }
}

// Calls f(first, count) for each tile of the warp, after filling `pixels` for its tokens.
template <Share kShare, class F>
__device__ __forceinline__ void for_tiles(const LandmarkJob& job, const Place& place,
                                          const WarpBuffers& w, const F& f) {
  const int tokens = job.shape.tokens;
  for_turns<kShare>(job, w, [&](int first) {
    __syncwarp();  // the previous tile is no longer used
    w.pixels[w.lane] = place.pixel(min(first + w.lane, tokens - 1));
    f(first, min(kTokens, tokens - first));
  });
}

// Computes scores[t, j] = finish(logit, t, j) for tokens of a map (q or k) and landmarks; 0 for
// j >= m.
template <class T, class F>
__device__ __forceinline__ void score(const LandmarkJob& job, const T* map, const float* landmarks,
                                      int count, const LandmarkBuffers& b, const WarpBuffers& w,
                                      const F& finish) {
  const int channels = job.shape.head_dim;
  for (int c = 0; c < channels; c += kChunk) {
    const int n = min(kChunk, channels - c);
    stage_tile(job, map + c, count, n, w);
    for (int unit = w.lane; unit < 2 * b.m4; unit += kWarp) {
      const int t = unit % 8, j0 = unit / 8 * 4;  // tokens t, t + 8, t + 16, t + 24
      float* const out = w.scores + t * b.m_step + j0;
      Result<4> r = zero_result<4>();
      if (c > 0) load_rows(r, out, 8 * b.m_step);
      add_rows_by_rows(r, w.tile + t * job.tile_step, 8 * job.tile_step,
                       landmarks + j0 * b.d_step + c, b.d_step, round_up(n, 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c + kChunk >= channels) {
#pragma unroll
          for (int j = 0; j < 4; ++j)
            r.v[i][j] = j0 + j < job.m ? finish(r.v[i][j], t + 8 * i, j0 + j) : 0.0f;
        }
        store4(out + 8 * i * b.m_step, r.v[i]);
      }
    }
  }
  __syncwarp();
}

// Computes values = correction(landmark) * values + scores^T v for the tokens of the warp's tile.
template <class T, class F>
__device__ __forceinline__ void add_values(const LandmarkJob& job, const T* map, int count,
                                           const LandmarkBuffers& b, const WarpBuffers& w,
                                           const F& correction) {
  const int channels = job.shape.value_dim;
  for (int c = 0; c < channels; c += kChunk) {
    const int n = min(kChunk, channels - c), across = round_up(n, 4) / 4;
    stage_tile(job, map + c, count, n, w);
    for (int unit = w.lane; unit < b.m4 / 4 * across; unit += kWarp) {
      const int j0 = unit / across * 4, c0 = unit % across * 4;
      float* const out = w.values + j0 * b.e_step + c + c0;
      Result<4> r;
      load_rows(r, out, b.e_step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float factor = correction(j0 + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) r.v[i][j] *= factor;
      }
      add_columns_by_columns(r, w.scores + j0, b.m_step, w.tile + c0, job.tile_step, count);
#pragma unroll
      for (int i = 0; i < 4; ++i) store4(out + i * b.e_step, r.v[i]);
    }
  }
}

// Adds up the values of all warps, weighted by share(warp, j), in those of the first warp; 0 for
// j >= m.
template <class F>
__device__ __forceinline__ void merge_values(const LandmarkJob& job, const LandmarkBuffers& b,
                                             int warps, const F& share) {
  for (int e = int(threadIdx.x); e < b.m4 * b.e_step; e += int(blockDim.x)) {
    const int j = e / b.e_step;
    float sum = 0.0f;
    for (int i = 0; i < warps && j < job.m; ++i)
      sum += share(i, j) * b.values[i * b.m4 * b.e_step + e];
    b.values[e] = sum;
  }
}

// Computes product = Z values.
__device__ __forceinline__ void apply_inverse(const LandmarkJob& job, const LandmarkBuffers& b) {
  const int across = round_up(job.shape.value_dim, 4) / 4;
  for (int unit = int(threadIdx.x); unit < b.m4 / 4 * across; unit += int(blockDim.x)) {
    const int row = unit / across * 4, column = unit % across * 4;
    Result<4> r = zero_result<4>();
    add_rows_by_columns(r, b.inverse + row * b.m_step, b.m_step, b.values + column, b.e_step, b.m4);
#pragma unroll
    for (int i = 0; i < 4; ++i) store4(b.product + (row + i) * b.e_step + column, r.v[i]);
  }
}

// Calls finish(t, c, v) with v = channels c ... c + 3 of row t of scores * matrix, for all tokens
// and channels of a tile.
template <class F>
__device__ __forceinline__ void for_outputs(const LandmarkJob& job, int count, const float* matrix,
                                            const LandmarkBuffers& b, const WarpBuffers& w,
                                            const F& finish) {
  const int across = round_up(job.shape.value_dim, 4) / 4;
  for (int unit = w.lane; unit < 8 * across; unit += kWarp) {
    const int t = unit / across, c = unit % across * 4;
    Result<4> r = zero_result<4>();
    add_rows_by_columns(r, w.scores + t * b.m_step, 8 * b.m_step, matrix + c, b.e_step, b.m4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (t + 8 * i < count) finish(t + 8 * i, c, r.v[i]);
  }
}

// Returns the address of the first output channel of token t.
template <class T>
__device__ __forceinline__ T* output(const LandmarkJob& job, const WarpBuffers& w, T* out, int head,
                                     int t) {
  return out + w.pixels[t] * job.shape.out_channels + head * job.shape.value_dim;
}

}  // namespace
}  // namespace nystra::cuda
