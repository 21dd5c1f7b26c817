// Attributes and shapes that all window plugins share.
#pragma once

#include "plugin.h"

namespace nystra::trt {

// heads, head_dim, ... mask and scale, in the order of the schema.
AttributeTable window_table();

// The attributes; batch, height and width are left 0. Throws Refusal where a shift is not smaller
// than its window.
WindowShape window_attributes(const Attributes&);

// Checks qkv (B, H, W, h(2d+e)) against the attributes; sizes of -1 are not known yet.
void check_map(const WindowShape& shape, const Dims& qkv);

// Fills in batch, height and width.
WindowShape with_map(WindowShape shape, const Dims& qkv);

// (B, H, W, h e).
void window_output(const WindowShape& shape, const DimsExprs& qkv, const Sizes& sizes,
                   DimsExprs* out);

}  // namespace nystra::trt
