// What the two Nystrom forms share on the CPU: they differ in their kernels.
#pragma once

#include "compute.h"

namespace nystra::cpu {

struct LandmarkKernels {
  decltype(Kernels::window_nystrom_scratch) scratch;
  decltype(Kernels::window_nystrom_maxima) maxima;
  decltype(Kernels::window_nystrom) run;
};

inline void compute(const LandmarkWindows& op, const LandmarkKernels& k, const Tensors& t,
                    const Threads& threads) {
  const LandmarkParams params = op.params(t.shapes);
  const int64_t tasks = params.shape.windows() * params.shape.heads, floats = k.scratch(params);
  BatchMaxima given = kOwnMaxima;
  if (op.batch_init())
    given = batch_maxima(threads, tasks, floats, [&](auto... share) {
      return k.maxima(params, t.type, t.inputs[0], share...);
    });
  threads.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
    return k.run(params, t.type, t.inputs[0], given, t.outputs[0], first, last, scratch);
  });
}

}  // namespace nystra::cpu
