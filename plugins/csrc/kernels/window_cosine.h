// The kernels of NystraWindowCosine, exact attention by the cosines of queries and keys: qkv
// (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU it is NystraWindowSoftmax's.
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_COSINE_CPU(X)

namespace cuda {

// bias_table ((2wh-1)(2ww-1), h), or null: none; logit_scale (h).
Status window_cosine(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                     const void* logit_scale, void* out, Stream stream,
                     const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
