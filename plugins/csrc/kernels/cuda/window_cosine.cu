// NystraWindowCosine: exact attention by cosines in the windows of a shifted map.
#include "kernels/window_cosine.h"

#include "softmax_launch.h"

namespace nystra::cuda {

Status window_cosine(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                     const void* logit_scale, void* out, Stream stream,
                     const LaunchLimits& limits) {
  return softmax_windows<Area::kCosine>(shape, type, qkv, bias_table, out, stream, limits,
                                        logit_scale);
}

}  // namespace nystra::cuda
