// NystraWindowOverlap: exact attention of the queries of a window to the keys in a larger window
// around it.
#include "kernels/window_overlap.h"

#include "softmax_launch.h"

namespace nystra::cuda {

Status window_overlap(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, Stream stream, const LaunchLimits& limits) {
  return softmax_windows<Area::kAround>(shape, type, qkv, bias_table, out, stream, limits);
}

}  // namespace nystra::cuda
