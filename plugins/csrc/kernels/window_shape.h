// Common parameters of kernels over windows. Letters as in the documentation: qkv (B, H, W,
// h(2d+e)).
#pragma once

#include "kernel.h"

namespace nystra {

struct WindowShape {
  int64_t batch, height, width;
  int64_t heads, head_dim, value_dim;
  int64_t window_h, window_w, shift_h, shift_w;
  int64_t mask;  // between regions 0: nothing is added; 1: -100; 2: what hides them at any score
  float scale;
  int64_t margin_h = 0, margin_w = 0;  // of the keys around a window
  float epsilon = 0;  // the least norm that queries and keys are divided by; 0: they are not

  float between_regions() const { return mask == 2 ? -1e9f : -100.0f; }
  int64_t channels() const { return heads * (2 * head_dim + value_dim); }
  int64_t tokens() const { return window_h * window_w; }
  int64_t key_h() const { return window_h + 2 * margin_h; }
  int64_t key_w() const { return window_w + 2 * margin_w; }
  int64_t keys() const { return key_h() * key_w(); }
  int64_t bias_rows() const { return (window_h + key_h() - 1) * (window_w + key_w() - 1); }
  int64_t windows() const { return batch * (height / window_h) * (width / window_w); }
};

}  // namespace nystra
