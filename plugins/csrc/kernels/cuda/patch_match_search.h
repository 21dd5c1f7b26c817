// The rows of a search: 8 lanes share a query pixel, its row of k entries and each candidate's sum.
#pragma once

#include <cmath>

#include "patch_match_maps.h"

namespace nystra::cuda {
namespace {

constexpr int kLanes = 8;               // of a pixel
constexpr int kTile = 4;                // pixels along each side of a block's tile
constexpr int kPixels = kTile * kTile;  // of a block
constexpr int kSearchThreads = kPixels * kLanes;
constexpr int kNone = 0x7fffffff;  // an empty entry, after every key; -1 in a field

struct Field {
  int* index;  // (B, k, H, W)
  float* score;
};

struct Search {
  PaddedMap query, key;
  int batch, neighbors, patch, seed;
  int tiles_down, tiles_across;
  const uint8_t *searching, *allowed;    // (B, H, W), (B, Hk, Wk)
  const int *list, *count;               // (B, Hk Wk) or null: all; (B)
  const float *query_norms, *key_norms;  // of the cosine, else null
  Field from, to;                        // of the pass
};

// Entry i of the fixed table of random numbers.
__device__ __forceinline__ uint32_t table_entry(uint32_t i) {
  uint32_t x = i * 2654435761u + 12345u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x >> 2;
}

// Draw number n of pixel (y, x).
__device__ __forceinline__ int draw(int y, int x, int n, int seed) {
  const uint32_t u =
      table_entry((uint32_t(x) + 619u * (uint32_t(n) % 4096u) + 811u * uint32_t(seed)) % 4096u);
  const uint32_t v = table_entry((uint32_t(y) + u) % 4096u);
  return int((u + v) % (1u << 30));
}

__device__ __forceinline__ bool better(float score, int index, float other_score, int other_index) {
  return score > other_score || (score == other_score && index < other_index);
}

// One pixel's row, and how candidates get into it. All 8 lanes of the pixel call everything.
template <bool kSquares>
class Row {
 public:
  __device__ Row(const Search& search, SharedMemory& shared) : s_(search) {
    const int thread = int(threadIdx.x), group = thread / kLanes;
    lane_ = thread % kLanes;
    lanes_ = 0xffu << (thread % kWarp / kLanes * kLanes);
    index_ = shared.take<int>(kPixels * s_.neighbors) + group * s_.neighbors;
    score_ = shared.take<float>(kPixels * s_.neighbors) + group * s_.neighbors;
    const int tile = int(blockIdx.x), across = tile % s_.tiles_across,
              rest = tile / s_.tiles_across;
    y = rest % s_.tiles_down * kTile + group / kTile;
    x = across * kTile + group % kTile;
    image = rest / s_.tiles_down;
    inside = y < s_.query.height && x < s_.query.width;
    pixel_ = int64_t(y) * s_.query.width + x;
    searches = inside && s_.searching[image * pixels() + pixel_] != 0;
    patch_ = s_.query.patch(image, inside ? y : 0, inside ? x : 0);
    norm_ = s_.query_norms != nullptr && inside ? s_.query_norms[image * pixels() + pixel_] : 1.0f;
  }

  int y, x, image;
  bool inside, searches;  // the pixel is in the map; it searches

  __device__ void clear() {
    for (int i = lane_; i < s_.neighbors; i += kLanes) index_[i] = kNone, score_[i] = -INFINITY;
    __syncwarp(lanes_);
  }

  // Entry i of the field before the pass, of this pixel or another one of the image.
  __device__ int entry(int i, int row, int column) const {
    return s_.from.index[(int64_t(image) * s_.neighbors + i) * pixels() +
                         int64_t(row) * s_.query.width + column];
  }

  __device__ void load_row() {
    for (int i = lane_; i < s_.neighbors && inside; i += kLanes) {
      const int64_t at = (int64_t(image) * s_.neighbors + i) * pixels() + pixel_;
      const int index = s_.from.index[at];
      index_[i] = index < 0 ? kNone : index;
      score_[i] = s_.from.score[at];
    }
    __syncwarp(lanes_);
  }

  __device__ void store_row() const {
    for (int i = lane_; i < s_.neighbors && inside; i += kLanes) {
      const int64_t at = (int64_t(image) * s_.neighbors + i) * pixels() + pixel_;
      s_.to.index[at] = index_[i] == kNone ? -1 : index_[i];
      s_.to.score[at] = score_[i];
    }
  }

  // Merges the key at (v, u), which must be in the map.
  __device__ void offer(int v, int u) {
    const int key = v * s_.key.width + u, last = s_.neighbors - 1;
    if (s_.allowed[image * keys() + key] == 0) return;
    bool known = false;
    for (int i = lane_; i < s_.neighbors; i += kLanes) known = known || index_[i] == key;
    if (__any_sync(lanes_, known)) return;
    const float score = score_of(v, u, key, score_[last]);
    const bool taken = better(score, key, score_[last], index_[last]);
    __syncwarp(lanes_);  // the row was read
    if (taken && lane_ == 0) {
      int i = last;
      for (; i > 0 && better(score, key, score_[i - 1], index_[i - 1]); --i) {
        index_[i] = index_[i - 1];
        score_[i] = score_[i - 1];
      }
      index_[i] = key;
      score_[i] = score;
    }
    __syncwarp(lanes_);
  }

  __device__ int64_t keys() const { return int64_t(s_.key.height) * s_.key.width; }

 private:
  __device__ int64_t pixels() const { return int64_t(s_.query.height) * s_.query.width; }

  __device__ float sum_lanes(float v) const {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) v += __shfl_xor_sync(lanes_, v, lanes);
    return v;
  }

  // The score of a key; with squares anything below `worst` where it certainly is: sums of squares
  // only grow, in floating point too.
  __device__ float score_of(int v, int u, int key, float worst) const {
    const float *query = patch_, *other = s_.key.patch(image, v, u);
    const int floats = s_.patch * s_.query.step;
    float sum = 0.0f;
    for (int i = 0; i < s_.patch; ++i, query += s_.query.row(), other += s_.key.row()) {
#pragma unroll 4
      for (int j = 4 * lane_; j < floats; j += 4 * kLanes) {
        float a[4], b[4];
        load(query + j, a);
        load(other + j, b);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float left = kSquares ? a[c] - b[c] : a[c];
          sum = fmaf(left, kSquares ? left : b[c], sum);
        }
      }
      if (kSquares && sum_lanes(sum) > -worst) return -INFINITY;
    }
    float score = sum_lanes(sum);
    if (kSquares) score = -score;
    if (s_.key_norms != nullptr) score = score / norm_ / s_.key_norms[image * keys() + key];
    return score != score ? -INFINITY : score;
  }

  const Search& s_;
  int* index_;
  float* score_;
  int lane_;
  unsigned lanes_;  // of the pixel, in their warp
  int64_t pixel_;
  const float* patch_;
  float norm_;
};

}  // namespace
}  // namespace nystra::cuda
