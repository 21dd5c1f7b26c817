// Code shared by the kernels of exact attention: the queries and keys of a block, and their
// position biases.
//
// The index into a bias table is linear in the coordinates: that of a query minus that of a key. A
// block needs only the part of the table for the rows of its queries.
#pragma once

#include "windows.h"

namespace nystra::cuda {
namespace {

constexpr int kMaxWarps = 4;
constexpr int kQueries = 16;  // per warp

struct SoftmaxJob {
  Windows shape;
  int chunks;       // into which the queries of a window are divided
  int64_t blocks;   // of the grid
  bool stage_bias;  // the block's part of the table is copied to shared memory
  int part;         // largest number of entries of such a part
  float scale;      // times log2(e)
};

// Keys of a tile, in shared memory.
struct Keys {
  int* pixels;   // kNoPixel: beyond the map or the window
  int* places;   // index into the bias table, times -1
  int* regions;  // only in windows with several regions

  __device__ Keys from(int key) const { return {pixels + key, places + key, regions + key}; }
};

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
template <bool kAround>
__device__ __forceinline__ void find_keys(const Windows& s, const Place& place, int first,
                                          int count, const Keys& keys) {
#pragma unroll 1  // two at most
  for (int i = thread_again(); i < count; i += int(blockDim.x)) {
    const int key = min(first + i, s.keys - 1), y = key / s.key_w, x = key % s.key_w;
    int pixel = kNoPixel;
    if (kAround) {
      const int row = place.top + y - s.margin_h, column = place.left + x - s.margin_w;
      if (row >= 0 && row < s.height && column >= 0 && column < s.width)
        pixel = place.image + row * s.width + column;
    } else {
      pixel = place.pixel(y, x);
      keys.regions[i] = place.region(y, x);
    }
    keys.pixels[i] = first + i < s.keys ? pixel : kNoPixel;
    keys.places[i] = -(y * bias_across(s) + x);
  }
}

// A query: its index into the block's part of the table, and its region.
struct Query {
  int place, region;

  __device__ Query(const Windows& s, const Place& window, int token, int first_of_block) {
    const int y = token / s.window_w, x = token % s.window_w;
    place = (y - first_of_block / s.window_w + s.key_h - 1) * bias_across(s) + x + s.key_w - 1;
    region = window.region(y, x);
  }
};

// The position biases of a head for the queries of a block.
template <class T>
class Biases {
 public:
  // `part` is shared memory for the staged biases. The caller needs a barrier before they are read.
  __device__ Biases(const SoftmaxJob& job, const T* table, int head, int first_query, int count,
                    float* part)
      : heads_(job.shape.heads), staged_(job.stage_bias), there_(table != nullptr), part_(part) {
    if (!there_) return;
    const Windows& s = job.shape;
    const int top = first_query / s.window_w, bottom = (first_query + count - 1) / s.window_w;
    const int across = bias_across(s), entries = (bottom - top + s.key_h) * across;
    table_ = table + int64_t(top) * across * heads_ + head;
    for (int i = int(threadIdx.x); staged_ && i < entries; i += int(blockDim.x))
      part_[i] = from_table(i);
  }

  __device__ bool there() const { return there_; }

  // Returns the bias of an entry, times log2(e), from the staged part.
  __device__ float staged(int entry) const { return part_[entry]; }

  // Calls f(bias_of), where bias_of(entry) returns the bias times log2(e).
  template <class F>
  __device__ __forceinline__ void with(const F& f) const {
    if (staged_)
      f([this](int entry) { return part_[entry]; });
    else
      f([this](int entry) { return from_table(entry); });
  }

 private:
  __device__ float from_table(int entry) const {
    return to_float(table_[int64_t(entry) * heads_]) * kLog2E;
  }

  int heads_;
  bool staged_, there_;
  float* part_;
  const T* table_ = nullptr;
};

}  // namespace
}  // namespace nystra::cuda
