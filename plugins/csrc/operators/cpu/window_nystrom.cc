#include "landmark_windows.h"

namespace nystra::cpu {

void compute(const WindowNystrom& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  compute(op, {k.window_nystrom_scratch, k.window_nystrom_maxima, k.window_nystrom}, t, threads);
}

}  // namespace nystra::cpu
