// The rows of a search: 8 lanes process a query pixel, its row of k entries and the scores of its
// candidates together.
#pragma once

#include <cmath>

#include "kernels/patch_match_random.h"
#include "patch_match_maps.h"

namespace nystra::cuda {
namespace {

constexpr int kLanes = 8;               // per pixel
constexpr int kTile = 4;                // pixels along each side of a block's tile
constexpr int kPixels = kTile * kTile;  // per block
constexpr int kSearchThreads = kPixels * kLanes;
constexpr int kTogether = 3;       // keys that are scored together
constexpr int kPacks = 4;          // loads of a key that a lane issues at once
constexpr int kNone = 0x7fffffff;  // an empty entry, after every key; -1 in a field

struct Field {
  int* index;  // (B, k, H, W)
  float* score;
};

template <class T>
struct Search {
  PaddedMap<T> query, key;
  int batch, neighbors, patch, seed;
  int tiles_down, tiles_across;
  const uint8_t *searching, *allowed;    // (B, H, W), (B, Hk, Wk)
  const int *list, *count;               // (B, Hk Wk) or null: all; (B)
  const float *query_norms, *key_norms;  // for cosine, otherwise null
  Field from, to;                        // fields that a pass reads and writes
};

__device__ __forceinline__ bool better(float score, int index, float other_score, int other_index) {
  return score > other_score || (score == other_score && index < other_index);
}

// The row of one pixel, and how candidates are merged into it. All lanes of the warp have to call
// each function together. kKeys keys are scored at a time.
template <class T, bool kSquares, int kKeys>
class Row {
 public:
  __device__ Row(const Search<T>& search, SharedMemory& shared) : s_(search) {
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
  bool inside, searches;  // whether the pixel is in the map; whether the mask lets it search

  __device__ void clear() {
    for (int i = lane_; i < s_.neighbors; i += kLanes) index_[i] = kNone, score_[i] = -INFINITY;
    __syncwarp();
  }

  // Returns entry i that a pixel of the image had before this pass.
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
    __syncwarp();
  }

  __device__ void store_row() const {
    for (int i = lane_; i < s_.neighbors && inside; i += kLanes) {
      const int64_t at = (int64_t(image) * s_.neighbors + i) * pixels() + pixel_;
      s_.to.index[at] = index_[i] == kNone ? -1 : index_[i];
      s_.to.score[at] = score_[i];
    }
  }

  // Merges the keys next(0) ... next(count - 1) into the row; -1 stands for none, all others must
  // be in the map. All lanes of the warp have to call this together, with the same count.
  template <class F>
  __device__ void offer_all(int count, const F& next) {
    for (int first = 0; first < count; first += kKeys) {
      int keys[kKeys];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) keys[i] = first + i < count ? next(first + i) : -1;
      offer(keys);
    }
  }

  __device__ int64_t keys() const { return int64_t(s_.key.height) * s_.key.width; }

 private:
  __device__ int64_t pixels() const { return int64_t(s_.query.height) * s_.query.width; }

  __device__ float sum_lanes(float v) const {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
      v += __shfl_xor_sync(kAllLanes, v, lanes, kLanes);
    return v;
  }

  // Returns whether the key is in the row.
  __device__ bool known(int key) const {
    bool found = false;
    for (int first = 0; first < s_.neighbors; first += kLanes)
      found = found || (first + lane_ < s_.neighbors && index_[first + lane_] == key);
    return (__ballot_sync(kAllLanes, found) & lanes_) != 0;
  }

  __device__ void offer(const int (&keys)[kKeys]) {
    bool wanted[kKeys], any = false;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const bool old = known(keys[i]);
      wanted[i] = keys[i] >= 0 && !old && s_.allowed[image * this->keys() + keys[i]] != 0;
      any = any || wanted[i];
    }
    if (!__any_sync(kAllLanes, any)) return;
    const int last = s_.neighbors - 1;
    float scores[kKeys];
    score(keys, wanted, score_[last], scores);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const bool old = known(keys[i]);  // an earlier one of `keys` may be the same
      const bool taken =
          wanted[i] && !old && better(scores[i], keys[i], score_[last], index_[last]);
      __syncwarp();  // all lanes have read the row
      if (taken && lane_ == 0) insert(keys[i], scores[i]);
      __syncwarp();
    }
  }

  // Inserts a key that is better than the last entry of the row.
  __device__ void insert(int key, float score) {
    int i = s_.neighbors - 1;
    for (; i > 0 && better(score, key, score_[i - 1], index_[i - 1]); --i) {
      index_[i] = index_[i - 1];
      score_[i] = score_[i - 1];
    }
    index_[i] = key;
    score_[i] = score;
  }

  // Computes the scores of the wanted keys. With squares the result is -infinity if a score is
  // certain to be below `worst`, since sums of squares only grow, also in floating point. The warp
  // does not diverge: keys that a pixel does not want, or no longer wants, are not loaded.
  __device__ void score(const int (&keys)[kKeys], const bool (&wanted)[kKeys], float worst,
                        float (&scores)[kKeys]) const {
    const T *query = patch_, *others[kKeys];
    bool going[kKeys], any = false;
    float sums[kKeys] = {}, totals[kKeys] = {};
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      const int key = wanted[k] ? keys[k] : 0;
      others[k] = s_.key.patch(image, key / s_.key.width, key % s_.key.width);
      going[k] = wanted[k];
      any = any || wanted[k];
    }
    const int elements = s_.patch * s_.query.step;
    for (int i = 0; i < s_.patch; ++i, query += s_.query.row()) {
      for (int first = 0; first < elements; first += 4 * kLanes * kPacks)
        add_packs(query, others, going, any, first + 4 * lane_, elements, sums);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) others[k] += s_.key.row();
      if constexpr (kSquares) {
        any = false;
#pragma unroll
        for (int k = 0; k < kKeys; ++k) {
          totals[k] = sum_lanes(sums[k]);
          going[k] = going[k] && !(totals[k] > -worst);
          any = any || going[k];
        }
        if (!__any_sync(kAllLanes, any)) break;
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      float score = kSquares ? -totals[k] : sum_lanes(sums[k]);
      if (s_.key_norms != nullptr && wanted[k])
        score = score / norm_ / s_.key_norms[image * this->keys() + keys[k]];
      scores[k] = going[k] && score == score ? score : -INFINITY;
    }
  }

  // Adds the elements first, first + 4 kLanes, ... of a row of the patches, four at a time; all are
  // loaded before the first is used.
  __device__ __forceinline__ void add_packs(const T* query, const T* const (&others)[kKeys],
                                            const bool (&going)[kKeys], bool any, int first,
                                            int elements, float (&sums)[kKeys]) const {
    Pack<T, 4> a[kPacks] = {}, b[kKeys][kPacks] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = first + 4 * kLanes * p;
      if (any && j < elements) a[p] = pack_at<4>(query + j);
#pragma unroll
      for (int k = 0; k < kKeys; ++k)
        if (going[k] && j < elements) b[k][p] = pack_at<4>(others[k] + j);
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k)
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        float query_values[4], key_values[4];
        unpack(a[p], query_values);
        unpack(b[k][p], key_values);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float left = kSquares ? query_values[c] - key_values[c] : query_values[c];
          sums[k] = fmaf(left, kSquares ? left : key_values[c], sums[k]);
        }
      }
  }

  const Search<T>& s_;
  int* index_;
  float* score_;
  int lane_;
  unsigned lanes_;  // the lanes of the pixel, as a mask of the warp
  int64_t pixel_;
  const T* patch_;
  float norm_;
};

}  // namespace
}  // namespace nystra::cuda
