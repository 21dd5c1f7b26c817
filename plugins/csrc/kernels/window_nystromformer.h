// The kernels of NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "window_nystrom.h"

namespace nystra {

#define NYSTRA_WINDOW_NYSTROMFORMER_CPU(X)                                             \
  X(int64_t, window_nystromformer_scratch, (const WindowNystromParams&))               \
  X(Status, window_nystromformer_maxima,                                               \
    (const WindowNystromParams&, Type, const void* qkv, int64_t first, int64_t last,   \
     float* scratch, BatchMaxima* result))                                             \
  X(Status, window_nystromformer,                                                      \
    (const WindowNystromParams&, Type, const void* qkv, const BatchMaxima&, void* out, \
     int64_t first, int64_t last, float* scratch))

}  // namespace nystra
