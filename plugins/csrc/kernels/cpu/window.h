// Windows of a cyclically shifted map: where their tokens are, their regions, and packed copies.
#pragma once

#include "elements.h"

namespace nystra::NYSTRA_ISA {
namespace {

// A window in the map. Rows and columns from the cuts on belong to other Swin regions.
struct Place {
  int64_t image;  // the image's first pixel
  int64_t height, width, window_w;
  int64_t top, left;  // of the window, after the shift and before wrapping around
  int64_t row_cut, col_cut;
  bool cut;

  int64_t pixel(int64_t y, int64_t x) const {
    y += top;
    x += left;
    return image + (y < height ? y : y - height) * width + (x < width ? x : x - width);
  }
  int region(int64_t y, int64_t x) const { return 2 * (y >= row_cut) + (x >= col_cut); }
};

inline Place place(const WindowShape& s, int64_t window) {
  const int64_t down = s.height / s.window_h, across = s.width / s.window_w;
  const int64_t i = window / across % down, j = window % across;
  const bool cut_rows = s.mask && s.shift_h > 0 && i == down - 1;
  const bool cut_cols = s.mask && s.shift_w > 0 && j == across - 1;
  return Place{window / across / down * s.height * s.width,
               s.height,
               s.width,
               s.window_w,
               i * s.window_h + s.shift_h,
               j * s.window_w + s.shift_w,
               cut_rows ? s.window_h - s.shift_h : s.window_h,
               cut_cols ? s.window_w - s.shift_w : s.window_w,
               cut_rows || cut_cols};
}

// The pixels of `count` tokens of a window from token `first` on.
inline void token_pixels(const Place& p, int64_t first, int64_t count, int64_t* pixels) {
  int64_t y = first / p.window_w, x = first % p.window_w;
  for (int64_t i = 0; i < count; ++y, x = 0) {
    const int64_t n = p.window_w - x < count - i ? p.window_w - x : count - i;
    const int64_t row = p.top + y, column = p.left + x;
    const int64_t start = p.image + (row < p.height ? row : row - p.height) * p.width;
    for (int64_t j = column; j < column + n; ++j)
      pixels[i++] = start + (j < p.width ? j : j - p.width);
  }
}

// The regions of the same tokens, as numbers to compare vectors of.
inline void token_regions(const Place& p, int64_t first, int64_t count, float* regions) {
  int64_t y = first / p.window_w, x = first % p.window_w;
  for (int64_t i = 0; i < count; ++i) {
    regions[i] = float(p.region(y, x));
    if (++x == p.window_w) x = 0, ++y;
  }
}

// out[c * step + i] = channel c of token i, c < round_up(channels, kLanes): tokens in lanes.
// Tokens from `count` to the next multiple of kLanes are zeros.
template <class T>
inline void pack_columns(const T* map, int64_t stride, const int64_t* pixels, int64_t count,
                         int64_t channels, float* out, int64_t step) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int lanes = lanes_left(count, i);
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int n = lanes_left(channels, c);
      Vec block[kLanes];
      if (lanes == kLanes) {
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) block[j] = load_part(map + pixels[i + j] * stride + c, n);
      } else {
        for (int j = 0; j < kLanes; ++j)
          block[j] = j < lanes ? load_part(map + pixels[i + j] * stride + c, n) : Vec{};
      }
      transpose(block);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(out + (c + j) * step + i, block[j]);
    }
  }
}

// out[i * step + c] = channel c of token i, c < round_up(channels, kLanes) <= step.
template <class T>
inline void pack_rows(const T* map, int64_t stride, const int64_t* pixels, int64_t count,
                      int64_t channels, float* out, int64_t step) {
  for (int64_t i = 0; i < count; ++i) {
    const T* const token = map + pixels[i] * stride;
    for (int64_t c = 0; c < channels; c += kLanes)
      store(out + i * step + c, load_part(token + c, lanes_left(channels, c)));
  }
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
