// NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "kernels/window_nystromformer.h"
#include "window_nystrom.h"

namespace nystra {

class WindowNystromformer : public WindowNystrom {
 public:
  static constexpr const Schema& kSchema = kWindowNystromformerSchema;

  explicit WindowNystromformer(const Attributes& a) : WindowNystrom(a, 0, 0) {}

  void compute(const Tensors&, const Threads&, const Kernels&) const;
};

}  // namespace nystra
