// Windows of a cyclically shifted map: the pixels of their tokens, and their regions.
#pragma once

#include "elements.h"
#include "kernels/window_shape.h"

namespace nystra::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.693147180559945309417f;
constexpr float kApart = -100.0f * kLog2E;  // added to logits (times log2(e)) between regions
constexpr int kTokens = 32;                 // per tile
constexpr int kNoPixel = -1;                // beyond the map
constexpr int kChunk = 64;                  // most channels of a tile

// WindowShape in the integer types that kernels use.
struct Windows {
  int height, width, heads, head_dim, value_dim;
  int window_h, window_w, shift_h, shift_w, mask;
  int tokens, down, across;  // tokens of a window; windows in a map
  int64_t channels, out_channels;
  int margin_h, margin_w, key_h, key_w, keys;  // of the keys around a window
  int bias_rows;                               // of a table of position biases
};

// Returns whether pixels can be counted in ints.
inline bool countable(const WindowShape& s) { return s.batch * s.height * s.width <= 0x7fffffff; }

inline Windows windows(const WindowShape& s) {
  return Windows{int(s.height),
                 int(s.width),
                 int(s.heads),
                 int(s.head_dim),
                 int(s.value_dim),
                 int(s.window_h),
                 int(s.window_w),
                 int(s.shift_h),
                 int(s.shift_w),
                 int(s.mask),
                 int(s.tokens()),
                 int(s.height / s.window_h),
                 int(s.width / s.window_w),
                 s.channels(),
                 s.heads * s.value_dim,
                 int(s.margin_h),
                 int(s.margin_w),
                 int(s.key_h()),
                 int(s.key_w()),
                 int(s.keys()),
                 int(s.bias_rows())};
}

// A window in the map. Rows and columns from the cuts on are in other regions (Swin's mask).
struct Place {
  int image;  // the image's first pixel
  int height, width, window_w;
  int top, left;  // of the window, after the shift and before wrapping around
  int row_cut, col_cut;
  bool cut;

  __device__ Place(const Windows& s, int window) {
    const int i = window / s.across % s.down, j = window % s.across;
    const bool cut_rows = s.mask && s.shift_h > 0 && i == s.down - 1;
    const bool cut_cols = s.mask && s.shift_w > 0 && j == s.across - 1;
    image = window / s.across / s.down * s.height * s.width;
    height = s.height;
    width = s.width;
    window_w = s.window_w;
    top = i * s.window_h + s.shift_h;
    left = j * s.window_w + s.shift_w;
    row_cut = cut_rows ? s.window_h - s.shift_h : s.window_h;
    col_cut = cut_cols ? s.window_w - s.shift_w : s.window_w;
    cut = cut_rows || cut_cols;
  }

  __device__ int pixel(int y, int x) const {
    y += top;
    x += left;
    return image + (y < height ? y : y - height) * width + (x < width ? x : x - width);
  }
  __device__ int region(int y, int x) const { return 2 * (y >= row_cut) + (x >= col_cut); }

  __device__ int pixel(int token) const { return pixel(token / window_w, token % window_w); }
  __device__ int region(int token) const { return region(token / window_w, token % window_w); }
};

// The channels of one head in a packed map.
template <class T>
struct Head {
  const T *q, *k, *v;

  __device__ Head(const Windows& s, const T* qkv, int head)
      : q(qkv + head * s.head_dim),
        k(qkv + (s.heads + head) * s.head_dim),
        v(qkv + 2 * s.heads * s.head_dim + head * s.value_dim) {}
};

// Writes those of the channels c ... c + 3 of an output token that exist.
template <class T>
__device__ __forceinline__ void write4(T* token, int c, int channels, int width,
                                       const float (&v)[4]) {
  if (width == 4) {
    store<4>(token + c, v);
  } else if (width == 2) {
    store<2>(token + c, v);
    if (c + 2 < channels) store<2>(token + c + 2, v + 2);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (c + j < channels) token[c + j] = from_float<T>(v[j]);
  }
}

}  // namespace
}  // namespace nystra::cuda
