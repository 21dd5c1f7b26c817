// The kernels of NystraWindowSoftmax, exact attention: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "window_shape.h"

namespace nystra {

struct WindowSoftmaxParams {
  WindowShape shape;
  const float* bias;     // by window_softmax_bias; null: none
  const float* factors;  // by window_softmax_factors, of cosines; null: none
};

#define NYSTRA_WINDOW_SOFTMAX_CPU(X)                                                            \
  X(int64_t, window_softmax_tasks, (const WindowShape&))                                        \
  X(int64_t, window_softmax_scratch, (const WindowShape&))                                      \
  X(int64_t, window_softmax_bias_size, (const WindowShape&))                                    \
  X(void, window_softmax_bias, (const WindowShape&, Type, const void* table, float* bias))      \
  X(void, window_softmax_factors,                                                               \
    (const WindowShape&, Type, const void* logit_scale, float* factors))                        \
  X(Status, window_softmax,                                                                     \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last, \
     float* scratch))

}  // namespace nystra
