// NystraWindowCosine: qkv (B, H, W, h(2d+e)), bias_table, logit_scale (h) -> (B, H, W, h e).
#pragma once

#include "kernels/window_cosine.h"
#include "window_softmax.h"

namespace nystra {

class WindowCosine : public WindowSoftmax {
 public:
  static constexpr const Schema& kSchema = kWindowCosineSchema;

  explicit WindowCosine(const Attributes& a) : WindowSoftmax(Windows::of_cosines(a), a) {}

  void check(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;
};

}  // namespace nystra
