// NystraWindowNystrom: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "kernels/window_nystrom.h"
#include "landmark_windows.h"

namespace nystra {

class WindowNystrom : public LandmarkWindows {
 public:
  static constexpr const Schema& kSchema = kWindowNystromSchema;

  explicit WindowNystrom(const Attributes& a)
      : LandmarkWindows(a), threshold_(a.number("threshold")), guard_(a.number("guard")) {}

  WindowNystromParams params(const Shape* in) const {
    return {LandmarkWindows::params(in), threshold_, guard_};
  }

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_nystrom_workspace(params(in), batch_init(), limits);
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_nystrom(params(t.shapes), batch_init(), t.type, t.inputs[0], t.outputs[0],
                                workspace, stream, limits);
  }

 private:
  float threshold_, guard_;
};

}  // namespace nystra
