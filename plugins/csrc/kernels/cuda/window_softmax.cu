// NystraWindowSoftmax: exact attention in the windows of a shifted map.
#include "kernels/window_softmax.h"

#include "softmax_launch.h"

namespace nystra::cuda {

Status window_softmax(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, Stream stream, const LaunchLimits& limits) {
  return softmax_windows<Area::kWindow>(shape, type, qkv, bias_table, out, stream, limits);
}

}  // namespace nystra::cuda
