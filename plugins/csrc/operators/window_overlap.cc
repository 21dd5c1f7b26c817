#include "window_overlap.h"

namespace nystra {

void WindowOverlap::compute(const Tensors& t, const Threads& threads,
                            const Kernels& kernels) const {
  WindowSoftmax::compute(t, threads, kernels, kernels.window_overlap);
}

}  // namespace nystra
