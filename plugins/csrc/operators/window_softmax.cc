#include "window_softmax.h"

#include <memory>

namespace nystra {

void WindowSoftmax::check(const Shape* in) const {
  windows_.check(in[0]);
  if (bias_) windows_.check_bias_table(in[1]);
}

void WindowSoftmax::compute(const Tensors& t, const Threads& threads, const Kernels& kernels,
                            const float* factors) const {
  const WindowShape shape = params(t.shapes);
  std::unique_ptr<AlignedFloats> bias;
  if (bias_) {
    bias = std::make_unique<AlignedFloats>(size_t(kernels.window_softmax_bias_size(shape)));
    kernels.window_softmax_bias(shape, t.type, t.inputs[1], bias->get());
  }
  const WindowSoftmaxParams p{shape, bias ? bias->get() : nullptr, factors};
  threads.parallel(kernels.window_softmax_tasks(shape), kernels.window_softmax_scratch(shape),
                   [&](int64_t first, int64_t last, float* scratch) {
                     return kernels.window_softmax(p, t.type, t.inputs[0], t.outputs[0], first,
                                                   last, scratch);
                   });
}

}  // namespace nystra
