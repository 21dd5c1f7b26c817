#include "window_nystromformer.h"

namespace nystra {

void WindowNystromformer::compute(const Tensors& t, const Threads& threads,
                                  const Kernels& kernels) const {
  const LandmarkParams p = params(t.shapes);
  LandmarkWindows::compute(p, kernels.window_nystromformer_scratch(p),
                           kernels.window_nystromformer_maxima, kernels.window_nystromformer, t,
                           threads);
}

}  // namespace nystra
