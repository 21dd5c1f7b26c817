#include <memory>

#include "operators.h"
#include "windows.h"

namespace nystra::ort {

WindowSoftmax::WindowSoftmax(const Attributes& a)
    : shape_(window_attributes(a)), bias_(a.integer("bias", 0, 1) != 0) {}

WindowShape WindowSoftmax::with_inputs(const Tensor& qkv, const Tensor& table) const {
  const WindowShape shape = with_map(shape_, qkv);
  const std::vector<int64_t> expected = {(2 * shape.window_h - 1) * (2 * shape.window_w - 1),
                                         shape.heads};
  if (bias_ && table.shape != expected)
    throw Refusal("input bias_table is " + shape_text(table.shape) + "; expected " +
                  shape_text(expected) + " = ((2 window_h - 1) (2 window_w - 1), heads)");
  return shape;
}

void WindowSoftmax::compute(const CpuCall& call) const {
  const Tensor qkv = call.input(0), table = call.input(1);
  const WindowShape shape = with_inputs(qkv, table);
  void* const out = call.output(0, output_shape(shape));
  if (is_empty(shape)) return;
  const Kernels& k = *kernels();
  std::unique_ptr<AlignedFloats> bias;
  if (bias_) {
    bias = std::make_unique<AlignedFloats>(size_t(k.window_softmax_bias_size(shape)));
    k.window_softmax_bias(shape, call.type, table.data, bias->get());
  }
  const WindowSoftmaxParams params{shape, bias_ ? bias->get() : nullptr};
  call.parallel(k.window_softmax_tasks(shape), k.window_softmax_scratch(shape),
                [&](int64_t first, int64_t last, float* scratch) {
                  return k.window_softmax(params, call.type, qkv.data, out, first, last, scratch);
                });
}

}  // namespace nystra::ort
