// The kernels of NystraWindowNystrom: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "batch_maxima.h"
#include "window_shape.h"

namespace nystra {

struct WindowNystromParams {
  WindowShape shape;
  int64_t rows, cols, iterations;
  float threshold, guard;  // NystraWindowNystromformer has none

  int64_t landmarks() const { return rows * cols; }
};

#define NYSTRA_WINDOW_NYSTROM_CPU(X)                                                   \
  X(int64_t, window_nystrom_scratch, (const WindowNystromParams&))                     \
  X(Status, window_nystrom_maxima,                                                     \
    (const WindowNystromParams&, Type, const void* qkv, int64_t first, int64_t last,   \
     float* scratch, BatchMaxima* result))                                             \
  X(Status, window_nystrom,                                                            \
    (const WindowNystromParams&, Type, const void* qkv, const BatchMaxima&, void* out, \
     int64_t first, int64_t last, float* scratch))

}  // namespace nystra
