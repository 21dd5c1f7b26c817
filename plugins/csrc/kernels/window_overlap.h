// The kernels of NystraWindowOverlap, exact attention to the keys in and around each window, zeros
// beyond the map: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_OVERLAP_CPU(X)                                                            \
  X(int64_t, window_overlap_tasks, (const WindowShape&))                                        \
  X(int64_t, window_overlap_scratch, (const WindowShape&))                                      \
  X(int64_t, window_overlap_bias_size, (const WindowShape&))                                    \
  X(void, window_overlap_bias, (const WindowShape&, Type, const void* table, float* bias))      \
  X(Status, window_overlap,                                                                     \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last, \
     float* scratch))

namespace cuda {

// bias_table ((wh+kh-1)(ww+kw-1), h), or null: none.
size_t window_overlap_workspace(const WindowShape& shape, const LaunchLimits& limits = {});
Status window_overlap(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, void* workspace, Stream stream, const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
