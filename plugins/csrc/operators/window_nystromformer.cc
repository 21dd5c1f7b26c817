#include "window_nystromformer.h"

namespace nystra {

void WindowNystromformer::compute(const Tensors& t, const Threads& threads,
                                  const Kernels& kernels) const {
  WindowNystrom::compute(t, threads, kernels.window_nystromformer_scratch,
                         kernels.window_nystromformer_maxima, kernels.window_nystromformer);
}

}  // namespace nystra
