// NystraWindowOverlap: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_overlap.h"
#include "window_softmax.h"

namespace nystra {

class WindowOverlap : public WindowSoftmax {
 public:
  static constexpr const Schema& kSchema = kWindowOverlapSchema;

  explicit WindowOverlap(const Attributes& a) : WindowSoftmax(Windows::around(a), a) {}
};

}  // namespace nystra
