// The kernels of NystraWindowOverlap, exact attention to the keys in and around each window, zeros
// beyond the map: qkv (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU its tasks, scratch and bias
// are those of NystraWindowSoftmax.
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_OVERLAP_CPU(X)                                                            \
  X(Status, window_overlap,                                                                     \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last, \
     float* scratch))

namespace cuda {

// bias_table ((wh+kh-1)(ww+kw-1), h), or null: none.
Status window_overlap(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, Stream stream, const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
