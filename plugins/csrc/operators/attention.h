// NystraAttention: q (B, h, N, d), k (B, h, M, d), v (B, h, M, e) and a bias that broadcasts to
// (B, h, N, M) -> (B, h, N, e).
#pragma once

#include "attributes.h"
#include "kernels/attention.h"
#include "operators/table.h"
#include "shape.h"
#include "tensors.h"
#include "threads.h"

namespace nystra {

class Attention {
 public:
  static constexpr const Schema& kSchema = kAttentionSchema;

  explicit Attention(const Attributes& a) : scale_(a.number("scale")), bias_(a.flag("bias")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return {in[0][0], in[0][1], in[0][2], in[2][3]}; }
  AttentionParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

 private:
  static AttentionTensors tensors_of(const Tensors& t) {
    return {t.inputs[0], t.inputs[1], t.inputs[2], t.inputs[3], t.outputs[0]};
  }

  float scale_;
  bool bias_;
};

}  // namespace nystra
