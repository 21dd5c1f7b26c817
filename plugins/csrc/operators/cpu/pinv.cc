#include "compute.h"

namespace nystra::cpu {

void compute(const Pinv& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  const PinvParams params = op.params(t.shapes);
  const void* const a = t.inputs[0];
  void* const z = t.outputs[0];
  const int64_t floats = k.pinv_scratch(params);
  BatchMaxima given = kOwnMaxima;
  if (op.batch_init())
    given = batch_maxima(threads, params.matrices, floats,
                         [&](auto... share) { return k.pinv_maxima(params, t.type, a, share...); });
  threads.parallel(params.matrices, floats, [&](int64_t first, int64_t last, float* scratch) {
    return k.pinv(params, t.type, a, given, z, first, last, scratch);
  });
}

}  // namespace nystra::cpu
