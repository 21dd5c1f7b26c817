// NystraWindowSoftmax: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_softmax.h"
#include "windows.h"

namespace nystra {

class WindowSoftmax {
 public:
  static constexpr const Schema& kSchema = kWindowSoftmaxSchema;

  explicit WindowSoftmax(const Attributes& a) : WindowSoftmax(Windows(a), a) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  WindowShape params(const Shape* in) const { return windows_.shape(in[0]); }

  // factors: of the scores of each head; null: none.
  void compute(const Tensors&, const Threads&, const Kernels&,
               const float* factors = nullptr) const;

  size_t workspace(const Shape*, Type, const cuda::LaunchLimits& = {}) const { return 0; }
  Status launch(const Tensors& t, void*, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_softmax(params(t.shapes), t.type, t.inputs[0], bias_table(t), t.outputs[0],
                                stream, limits);
  }

 protected:
  WindowSoftmax(const Windows& windows, const Attributes& a)
      : windows_(windows), bias_(a.flag("bias")) {}

  const void* bias_table(const Tensors& t) const { return bias_ ? t.inputs[1] : nullptr; }

 private:
  Windows windows_;
  bool bias_;
};

}  // namespace nystra
