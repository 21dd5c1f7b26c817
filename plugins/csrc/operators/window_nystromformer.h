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

  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_nystromformer(params(t.shapes), batch_init(), t.type, t.inputs[0],
                                      t.outputs[0], workspace, stream, limits);
  }
};

}  // namespace nystra
