// NystraWindowSoftmax: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_softmax.h"
#include "windows.h"

namespace nystra {

class WindowSoftmax {
 public:
  static constexpr const Schema& kSchema = kWindowSoftmaxSchema;

  explicit WindowSoftmax(const Attributes& a) : windows_(a), bias_(a.flag("bias")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  WindowShape params(const Shape* in) const { return windows_.shape(in[0]); }

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_softmax_workspace(params(in), limits);
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_softmax(params(t.shapes), t.type, t.inputs[0],
                                bias_ ? t.inputs[1] : nullptr, t.outputs[0], workspace, stream,
                                limits);
  }

 private:
  Windows windows_;
  bool bias_;
};

}  // namespace nystra
