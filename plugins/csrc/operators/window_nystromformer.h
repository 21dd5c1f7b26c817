// NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "kernels/window_nystromformer.h"
#include "landmark_windows.h"

namespace nystra {

class WindowNystromformer : public LandmarkWindows {
 public:
  static constexpr const Schema& kSchema = kWindowNystromformerSchema;

  explicit WindowNystromformer(const Attributes& a) : LandmarkWindows(a) {}

  using LandmarkWindows::params;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_nystromformer_workspace(params(in), batch_init(), limits);
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_nystromformer(params(t.shapes), batch_init(), t.type, t.inputs[0],
                                      t.outputs[0], workspace, stream, limits);
  }
};

}  // namespace nystra
