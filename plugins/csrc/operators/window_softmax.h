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

 protected:
  WindowSoftmax(const Windows& windows, const Attributes& a)
      : windows_(windows), bias_(a.flag("bias")) {}

  const void* bias_table(const Tensors& t) const { return bias_ ? t.inputs[1] : nullptr; }

 private:
  Windows windows_;
  bool bias_;
};

}  // namespace nystra
