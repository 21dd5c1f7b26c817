// Attention with clustered keys: the parts of a window, and the buffers of a thread block.
//
// A window is divided into groups, and each group into exact blocks; the last ones along a side may
// be smaller. Tokens are processed in the order of groups; a position is the index in this order.
// So a warp processes whole groups.
#pragma once

#include "products.h"
#include "tensor_core.h"
#include "windows.h"

namespace nystra::cuda {
namespace {

constexpr int kMaxWarps = 4;
constexpr int kQueries = 16;    // that a warp processes at a time
constexpr int kSpan = 32;       // channels of a tile
constexpr int kTileStep = 36;   // row_step(kSpan)
constexpr int kPairs = 1024;    // pairs of groups per block of the bias kernel
constexpr int kStages = 2;      // buffered tiles on tensor cores
constexpr int kPieces = 3;      // most numbers of T into which a center is split on tensor cores
constexpr int kMeanPieces = 2;  // numbers of T into which a mean of values is split

struct ClusterJob {
  Windows shape;
  int64_t tasks;              // windows times heads
  int rows, cols, m, rounds;  // of clusters
  int block, side;            // side of exact blocks, of groups
  int down, across, groups;   // rows and columns of groups in a window, and their number
  int regions;                // most regions of a window
  bool biased;
  int width;                      // elements per vector access
  int steps;                      // of 16 channels on tensor cores; 0: CUDA cores
  int copy_bytes;                 // of an asynchronous copy on tensor cores: 16 or 4
  float scale;                    // times log2(e)
  const float *weights, *maxima;  // from window_cluster_bias_kernel
  int far;  // buffers in the workspace: 0 none, 1 groups and members, 2 also centers and sums
  unsigned char* workspace;
  int64_t block_bytes;  // workspace of one block
};

struct ClusterBuffers {
  int m4, m16, d_step, e_step, m_step, l_step;
  int slots, group_size, sums_size;
  float* groups;      // (slots, m4, e_step) sums of values by cluster; column e: counts
  uint16_t* members;  // (tokens) the cluster of each token
  float* centers;     // (m4, d_step) of the clusters, relative to `origin`
  float* sums;        // (warps, sums_size) sums of keys, then of values, then U_P of a group
  float* origin;      // (d_step) one of the keys
  float* halves;      // (m16) halves of the squared norms of the centers; see make_pieces()
  float* scales;      // (m16) powers of 2 by which the pieces of the centers are scaled
  uint16_t* pieces;   // (kPieces, m16, tensor_step) of the centers, of the element type
  float* own_bias;    // (2 block - 1)^2, times log2(e)
  float* tiles;       // (warps, warp_size): tile, and scores or means
  float* small;       // (warps, 2 m16 + kQueries)
  int* tokens;        // (warps, 3, own_size) pixels, members, slots
  int tile_size, warp_size, own_size;

  static constexpr int kMaxOwn = kMaxBlock * kMaxBlock;  // tokens of an exact block

  template <class Far, class Near>
  __host__ __device__ __forceinline__ ClusterBuffers(const ClusterJob& job, int level_of_far,
                                                     int warps, Far& far, Near& near)
      : m4(round_up(job.m, 4)),
        m16(round_up(job.m, 16)),
        d_step(row_step(job.shape.head_dim + 1)),
        e_step(row_step(job.shape.value_dim + 1)),
        m_step(row_step(job.m)),
        l_step(row_step(m4 + round_up(job.block * job.block, 4))),
        slots(job.biased ? job.groups : warps * job.regions),
        group_size(m4 * e_step),
        sums_size(m4 * (d_step > e_step ? d_step : e_step)) {
    const auto take = [&](auto* element, int level, int64_t count) {
      using T = std::remove_pointer_t<decltype(element)>;
      return level_of_far >= level ? far.template take<T>(count) : near.template take<T>(count);
    };
    float* const number = nullptr;
    groups = take(number, 1, int64_t(slots) * group_size);
    members = take(static_cast<uint16_t*>(nullptr), 1, job.shape.tokens);
    centers = take(number, 2, m4 * d_step);
    sums = take(number, 2, warps * sums_size);
    origin = take(number, 2, d_step);
    halves = near.template take<float>(m16);
    scales = near.template take<float>(job.steps > 0 ? m16 : 0);
    pieces =
        near.template take<uint16_t>(job.steps > 0 ? kPieces * m16 * tensor_step(job.steps) : 0);
    own_bias =
        near.template take<float>(job.biased ? (2 * job.block - 1) * (2 * job.block - 1) : 0);
    const int own4 = round_up(job.block * job.block, 4);
    tile_size = (own4 > kTokens ? own4 : kTokens) * kTileStep;
    const int attended = kQueries * (kTileStep + l_step), scored = kTokens * m_step;
    warp_size = tile_size + (attended > scored ? attended : scored);
    if (job.steps > 0) {
      tile_size = kStages * kTokens * tensor_step(job.steps) / 2;
      warp_size = tile_size + kMeanPieces * m16 * tensor_step(job.steps) / 2;
    }
    tiles = near.template take<float>(warps * warp_size);
    small = near.template take<float>(warps * (2 * m16 + kQueries));
    own_size = job.steps > 0 ? own4 : kMaxOwn;
    tokens = near.template take<int>(warps * 3 * own_size);
  }
};

// The part of the buffers that belongs to a warp, and the positions of the tokens that it assigns
// to clusters.
struct ClusterWarp {
  int lane, warp, warps, first, last;
  float *sums, *tile;  // (rows, kTileStep) keys or values; on tensor cores two tiles of 32 tokens
  float* scores;       // of keys by clusters; or queries and their logits
  float* means;  // on tensor cores, in the memory of scores: (kMeanPieces, m16, tensor_step) of T
  float *queries, *logits;
  float *others, *seen;  // (m16) weighted counts of members: in other groups; in all but the own
                         // block (on tensor cores their log2)
  float* factors;        // (kQueries)
  int *pixels, *members, *slots;

  // `thread` is thread_again(), so that these addresses do not occupy registers while unused.
  __device__ ClusterWarp(const ClusterJob& job, const ClusterBuffers& b, int thread)
      : lane(thread % kWarp),
        warp(thread / kWarp),
        warps(int(blockDim.x) / kWarp),
        sums(b.sums + warp * b.sums_size),
        tile(b.tiles + warp * b.warp_size),
        scores(tile + b.tile_size),
        means(scores),
        queries(scores),
        logits(queries + kQueries * kTileStep),
        others(b.small + warp * (2 * b.m16 + kQueries)),
        seen(others + b.m16),
        factors(seen + b.m16),
        pixels(b.tokens + warp * 3 * b.own_size),
        members(pixels + b.own_size),
        slots(members + b.own_size) {
    first = start(job, warp);
    last = start(job, warp + 1);
  }

  // Returns how many of members[from ... to - 1] are `cluster`.
  __device__ int count_of(int cluster, int from, int to) const {
    int count = 0;
    for (int i = from; i < to; ++i) count += members[i] == cluster;
    return count;
  }

  // Returns the first token of warp i if tokens are divided equally.
  __device__ int share(const ClusterJob& job, int i) const {
    return int(int64_t(job.shape.tokens) * i / warps);
  }

 private:
  // Returns the first position of warp i. With a bias a warp gets whole groups, whose sums it
  // computes alone.
  __device__ int start(const ClusterJob& job, int i) const {
    if (!job.biased) return share(job, i);
    const int group = job.groups * i / warps;
    if (group == job.groups) return job.shape.tokens;
    const int row = group / job.across * job.side, column = group % job.across * job.side;
    return row * job.shape.window_w + column * min(job.side, job.shape.window_h - row);
  }
};

// A rectangle of tokens in a window.
struct Rectangle {
  int top, left, bottom, right;
  __device__ int tokens() const { return (bottom - top) * (right - left); }
};

__device__ __forceinline__ Rectangle group_at(const ClusterJob& job, int group) {
  const int top = group / job.across * job.side, left = group % job.across * job.side;
  return {top, left, min(top + job.side, job.shape.window_h),
          min(left + job.side, job.shape.window_w)};
}

// Returns the region of a group; a group never crosses a border between regions.
__device__ __forceinline__ int group_region(const ClusterJob& job, const Place& place, int group) {
  return place.cut ? place.region(group / job.across * job.side, group % job.across * job.side) : 0;
}

// The token at a position.
struct Spot {
  int y, x, group;

  __device__ Spot(const ClusterJob& job, int position) {
    const int band = job.side * job.shape.window_w, row = position / band;
    const int high = min(job.side, job.shape.window_h - row * job.side);
    const int within = position - row * band, column = within / (high * job.side);
    const int wide = min(job.side, job.shape.window_w - column * job.side);
    const int i = within - column * high * job.side;
    y = row * job.side + i / wide;
    x = column * job.side + i % wide;
    group = row * job.across + column;
  }
};

// Calls f(first, count) for each 32 positions of the warp.
template <class F>
__device__ __forceinline__ void for_positions(const ClusterWarp& w, const F& f) {
  for (int first = w.first; first < w.last; first += kTokens) {
    __syncwarp();  // the previous tile is no longer used
    f(first, min(kTokens, w.last - first));
  }
}

// An exact block.
struct OwnBlock {
  int top, left, wide, tokens, side;

  // Returns the index in own_bias for two tokens of the block.
  __device__ int offset(int query, int key) const {
    const int dy = query / wide - key / wide, dx = query % wide - key % wide;
    return (dy + side - 1) * (2 * side - 1) + dx + side - 1;
  }
};

// Calls f(block) for each exact block of a group.
template <class F>
__device__ __forceinline__ void for_blocks(const ClusterJob& job, const Rectangle& group,
                                           const F& f) {
  for (int top = group.top; top < group.bottom; top += job.block)
    for (int left = group.left; left < group.right; left += job.block) {
      const int high = min(job.block, group.bottom - top),
                wide = min(job.block, group.right - left);
      f(OwnBlock{top, left, wide, high * wide, job.block});
    }
}

// Fills own_bias with the biases of a head minus its largest one. The caller needs a barrier before
// they are read.
template <class T>
__device__ __forceinline__ void fill_own_bias(const ClusterJob& job, const T* table, int head,
                                              const ClusterBuffers& b) {
  const Windows& s = job.shape;
  const int across = 2 * job.block - 1;
  for (int i = int(threadIdx.x); i < across * across; i += int(blockDim.x)) {
    const int dy = i / across - job.block + 1, dx = i % across - job.block + 1;
    const bool inside = dy > -s.window_h && dy < s.window_h && dx > -s.window_w && dx < s.window_w;
    const int64_t entry = (dy + s.window_h - 1) * (2 * s.window_w - 1) + dx + s.window_w - 1;
    b.own_bias[i] =
        inside ? (to_float(table[entry * s.heads + head]) - job.maxima[head]) * kLog2E : 0.0f;
  }
}

// Loads channels of the warp's tokens into the rows of a tile.
template <class T>
__device__ __forceinline__ void stage_rows(const ClusterJob& job, const T* map, const int* pixels,
                                           int rows, int count, int channels, float* tile,
                                           const ClusterWarp& w) {
  with_width(job.width, [&](auto width) {
    stage<decltype(width)::value, kAhead>(map, job.shape.channels, pixels, rows, count, channels,
                                          tile, kTileStep, w.lane, kWarp);
  });
}

// Subtracts the origin from all rows of a tile. Begins and ends with a barrier of the warp.
__device__ __forceinline__ void shift_rows(float* tile, int rows, int channels, const float* origin,
                                           const ClusterWarp& w) {
  __syncwarp();
  const int across = round_up(channels, 4) / 4;
  for (int i = w.lane; i < rows * across; i += kWarp) {
    float* const at = tile + i / across * kTileStep + i % across * 4;
    const float4 v = load4(at), o = load4(origin + i % across * 4);
    const float shifted[4] = {v.x - o.x, v.y - o.y, v.z - o.z, v.w - o.w};
    store4(at, shifted);
  }
  __syncwarp();
}

}  // namespace
}  // namespace nystra::cuda
