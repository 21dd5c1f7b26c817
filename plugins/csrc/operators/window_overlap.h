// NystraWindowOverlap: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_overlap.h"
#include "window_softmax.h"

namespace nystra {

class WindowOverlap : public WindowSoftmax {
 public:
  static constexpr const Schema& kSchema = kWindowOverlapSchema;

  explicit WindowOverlap(const Attributes& a) : WindowSoftmax(Windows::around(a), a) {}

  Status launch(const Tensors& t, void*, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_overlap(params(t.shapes), t.type, t.inputs[0], bias_table(t), t.outputs[0],
                                stream, limits);
  }
};

}  // namespace nystra
