// The kernels of NystraWindowCosine, exact attention by the cosines of queries and keys: qkv
// (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU its tasks, scratch and bias are those of
// NystraWindowSoftmax.
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_COSINE_CPU(X)                                                             \
  X(void, window_cosine_factors,                                                                \
    (const WindowShape&, Type, const void* logit_scale, float* factors))                        \
  X(Status, window_cosine,                                                                      \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last, \
     float* scratch))

namespace cuda {

// bias_table ((2wh-1)(2ww-1), h), or null: none; logit_scale (h).
Status window_cosine(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                     const void* logit_scale, void* out, Stream stream,
                     const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
