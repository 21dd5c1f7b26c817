// Attributes and shapes that all window operators share.
#pragma once

#include "binding.h"

namespace nystra::ort {

// The attributes; batch, height and width are left 0.
WindowShape window_attributes(const Attributes&);

// Checks qkv (B, H, W, h(2d+e)) against the attributes and fills in batch, height and width.
WindowShape with_map(WindowShape shape, const Tensor& qkv);

inline std::vector<int64_t> output_shape(const WindowShape& s) {
  return {s.batch, s.height, s.width, s.heads * s.value_dim};
}

inline bool is_empty(const WindowShape& s) { return s.batch == 0 || s.height == 0 || s.width == 0; }

}  // namespace nystra::ort
