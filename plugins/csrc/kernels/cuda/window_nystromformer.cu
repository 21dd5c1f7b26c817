// NystraWindowNystromformer: the row-normalized Nystrom attention in the windows of a shifted map:
// the kernel of window_nystrom.cu with an online softmax of the keys, and without the guard.
#include "kernels/window_nystromformer.h"

#include "landmark_launch.h"

namespace nystra::cuda {

Status window_nystromformer(const WindowNystromParams& params, bool batch_init, Type type,
                            const void* qkv, void* out, void* workspace, Stream stream,
                            const LaunchLimits& limits) {
  return launch_landmarks<Form::kSoftmax>(params, batch_init, type, qkv, out, workspace, stream,
                                          limits);
}

}  // namespace nystra::cuda
