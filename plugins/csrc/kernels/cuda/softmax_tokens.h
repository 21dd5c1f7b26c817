// Code shared by the kernels of exact attention: the queries and keys of a block, and their biases.
//
// The index into a bias table of windows is linear in the coordinates: that of a query minus that
// of a key. A block needs only the part of the table for the rows of its queries. A list of tokens
// has a bias for each query and key, or its parts that are broadcast, read from global memory.
#pragma once

#include <cmath>

#include "windows.h"

namespace nystra::cuda {
namespace {

// What is attended in: a window of a map, by cosines of its tokens too, a window with keys around
// it, or lists of tokens.
enum class Area { kWindow, kCosine, kAround, kList };

constexpr int kMaxWarps = 4;
constexpr int kQueries = 16;  // per warp

// Elements from a token, a head and an image of a tensor to the next. The tokens of a map are its
// pixels, which are counted through all images.
struct Steps {
  int64_t token, head, image;

  template <Area kArea, class T>
  __device__ T* first(T* tensor, int image_index, int head_index) const {
    T* const of_head = tensor + head_index * head;
    return kArea == Area::kList ? of_head + image_index * image : of_head;
  }
};

// The first channels of a head of an image.
template <class T>
struct Sources {
  const T *q, *k, *v;
};

struct SoftmaxJob {
  Windows shape;  // of lists: heads, head_dim, value_dim, tokens (queries), keys
  Steps q, k, v, out;
  int64_t bias[4];  // of lists: elements along the axes, 0 where it is broadcast
  int chunks;       // into which the queries of a window are divided
  int64_t blocks;   // of the grid
  bool stage_bias;  // the block's part of the table is copied to shared memory
  int part;         // largest number of entries of such a part
  float scale;      // times log2(e)

  // Of cosines: T, of the scores of each head; and the least norm that tokens are divided by.
  const void* factors;
  float epsilon;
};

// Keys of a tile, in shared memory.
struct Keys {
  int* pixels;     // kNoPixel: beyond the map, the window or the list
  int* places;     // what it adds to the index of a bias
  int* regions;    // only in windows with several regions
  float* factors;  // of scores, only of cosines

  __device__ Keys from(int key) const {
    return {pixels + key, places + key, regions + key, factors + key};
  }
};

// The number of a block's factors of keys, for so many of them.
__host__ __device__ inline int factor_count(const SoftmaxJob& job, int keys) {
  return job.factors == nullptr ? 0 : keys;
}

// The inverse of the norm of a token.
template <class T>
__device__ __forceinline__ float inverse_norm(const SoftmaxJob& job, const T* token) {
  float squares = 0.0f;
  for (int c = 0; c < job.shape.head_dim; ++c) {
    const float x = to_float(token[c]);
    squares = fmaf(x, x, squares);
  }
  return 1.0f / fmaxf(sqrtf(squares), job.epsilon);
}

// What the scores of a query are multiplied by, and, of cosines, by the factors of keys.
template <Area kArea, class T>
__device__ __forceinline__ float query_factor(const SoftmaxJob& job, const T* queries, int head,
                                              int pixel) {
  if constexpr (kArea == Area::kCosine)
    return job.scale * to_float(static_cast<const T*>(job.factors)[head]) *
           inverse_norm(job, queries + pixel * job.q.token);
  else
    return job.scale;
}

// The factor of the score of a query with a key.
template <Area kArea>
__device__ __forceinline__ float score_factor(float of_query, const Keys& keys, int key) {
  return kArea == Area::kCosine ? of_query * keys.factors[key] : of_query;
}

__host__ __device__ inline int bias_across(const Windows& s) { return s.window_w + s.key_w - 1; }

// Returns the largest number of entries that the queries of a block of so many warps need.
inline int64_t bias_part(const Windows& s, int warps) {
  const int queries = kQueries * warps;
  const int rows = queries % s.window_w == 0   ? queries / s.window_w
                   : s.window_w % queries == 0 ? 1
                                               : (queries + s.window_w - 2) / s.window_w + 1;
  return int64_t(std::min(rows, s.window_h) + s.key_h - 1) * bias_across(s);
}

// Fills `keys` with keys first ... first + count - 1 of a window. Entries past the last key are
// copies of it without a pixel.
template <Area kArea, class T>
__device__ __forceinline__ void find_keys(const SoftmaxJob& job, const Place& place, const T* k,
                                          int first, int count, const Keys& keys) {
  const Windows& s = job.shape;
#pragma unroll 1  // two at most
  for (int i = thread_again(); i < count; i += int(blockDim.x)) {
    const int key = min(first + i, s.keys - 1);
    if constexpr (kArea == Area::kList) {
      keys.pixels[i] = first + i < s.keys ? key : kNoPixel;
      keys.places[i] = key * int(job.bias[3]);
      continue;
    }
    const int y = key / s.key_w, x = key % s.key_w;
    int pixel = kNoPixel;
    if (kArea == Area::kAround) {
      const int row = place.top + y - s.margin_h, column = place.left + x - s.margin_w;
      if (row >= 0 && row < s.height && column >= 0 && column < s.width)
        pixel = place.image + row * s.width + column;
    } else {
      pixel = place.pixel(y, x);
      keys.regions[i] = place.region(y, x);
      if constexpr (kArea == Area::kCosine)
        keys.factors[i] = inverse_norm(job, k + pixel * job.k.token);
    }
    keys.pixels[i] = first + i < s.keys ? pixel : kNoPixel;
    keys.places[i] = -(y * bias_across(s) + x);
  }
}

// The pixel of a query.
template <Area kArea>
__device__ __forceinline__ int query_pixel(const Place& place, int token) {
  return kArea == Area::kList ? token : place.pixel(token);
}

// A query: what it adds to the index of a bias, of windows in the block's part of the table, and
// its region.
template <Area kArea>
struct Query {
  using Index = std::conditional_t<kArea == Area::kList, int64_t, int>;
  Index place;
  int region;

  __device__ Query(const SoftmaxJob& job, const Place& window, int token, int first_of_block) {
    if constexpr (kArea == Area::kList) {
      place = token * job.bias[2];
      region = 0;
      return;
    }
    const Windows& s = job.shape;
    const int y = token / s.window_w, x = token % s.window_w;
    place = (y - first_of_block / s.window_w + s.key_h - 1) * bias_across(s) + x + s.key_w - 1;
    region = window.region(y, x);
  }
};

// The biases of a head for the queries of a block.
template <Area kArea, class T>
class Biases {
 public:
  // `part` is shared memory for the staged biases. The caller needs a barrier before they are read.
  __device__ Biases(const SoftmaxJob& job, const T* table, int image, int head, int first_query,
                    int count, float* part)
      : heads_(job.shape.heads), staged_(job.stage_bias), exists_(table != nullptr), part_(part) {
    if (!exists_) return;
    if constexpr (kArea == Area::kList) {
      table_ = table + image * job.bias[0] + head * job.bias[1];
      return;
    }
    const Windows& s = job.shape;
    const int top = first_query / s.window_w, bottom = (first_query + count - 1) / s.window_w;
    const int across = bias_across(s), entries = (bottom - top + s.key_h) * across;
    table_ = table + int64_t(top) * across * heads_ + head;
    for (int i = int(threadIdx.x); staged_ && i < entries; i += int(blockDim.x))
      part_[i] = from_table(i);
  }

  __device__ bool exists() const { return exists_; }

  // Returns the bias of an entry, times log2(e); of windows from the staged part.
  __device__ float staged(typename Query<kArea>::Index entry) const {
    if constexpr (kArea == Area::kList)
      return from_list(entry);
    else
      return part_[entry];
  }

  // Calls f(bias_of), where bias_of(entry) returns the bias times log2(e).
  template <class F>
  __device__ __forceinline__ void with(const F& f) const {
    if constexpr (kArea == Area::kList)
      f([this](int64_t entry) { return from_list(entry); });
    else if (staged_)
      f([this](int entry) { return part_[entry]; });
    else
      f([this](int entry) { return from_table(entry); });
  }

 private:
  __device__ float from_table(int entry) const {
    return to_float(table_[int64_t(entry) * heads_]) * kLog2E;
  }
  // Finite where the bias is.
  __device__ float from_list(int64_t entry) const {
    const float bias = to_float(table_[entry]), scaled = bias * kLog2E;
    return bias > -INFINITY && scaled < -3e38f ? -3e38f : scaled;
  }

  int heads_;
  bool staged_, exists_;
  float* part_;
  const T* table_ = nullptr;
};

// What the sums of a query are multiplied by at the end. A query of a list that sees no key gets
// zeros.
template <Area kArea>
__device__ __forceinline__ float last_factor(float total) {
  return kArea == Area::kList && total == 0.0f ? 0.0f : 1.0f / total;
}

}  // namespace
}  // namespace nystra::cuda
