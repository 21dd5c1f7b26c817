#include "landmark_windows.h"

namespace nystra::cpu {

void compute(const WindowNystromformer& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  compute(op,
          {k.window_nystromformer_scratch, k.window_nystromformer_maxima, k.window_nystromformer},
          t, threads);
}

}  // namespace nystra::cpu
