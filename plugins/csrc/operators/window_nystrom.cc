#include "window_nystrom.h"

namespace nystra {

void WindowNystrom::compute(const Tensors& t, const Threads& threads,
                            const Kernels& kernels) const {
  const WindowNystromParams p = params(t.shapes);
  LandmarkWindows::compute(p, kernels.window_nystrom_scratch(p), kernels.window_nystrom_maxima,
                           kernels.window_nystrom, t, threads);
}

}  // namespace nystra
