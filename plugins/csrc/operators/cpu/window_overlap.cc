#include <memory>

#include "compute.h"

namespace nystra::cpu {

void compute(const WindowOverlap& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  const WindowShape shape = op.params(t.shapes);
  std::unique_ptr<AlignedFloats> bias;
  if (op.bias()) {
    bias = std::make_unique<AlignedFloats>(size_t(k.window_overlap_bias_size(shape)));
    k.window_overlap_bias(shape, t.type, t.inputs[1], bias->get());
  }
  const WindowSoftmaxParams params{shape, bias ? bias->get() : nullptr};
  threads.parallel(k.window_overlap_tasks(shape), k.window_overlap_scratch(shape),
                   [&](int64_t first, int64_t last, float* scratch) {
                     return k.window_overlap(params, t.type, t.inputs[0], t.outputs[0], first, last,
                                             scratch);
                   });
}

}  // namespace nystra::cpu
