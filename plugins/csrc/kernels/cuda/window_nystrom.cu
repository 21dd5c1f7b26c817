// NystraWindowNystrom: the kernel Nystrom attention of PnP-Nystra in windows of a shifted map.
//
// A thread block computes one head of one window: the landmarks, the pseudoinverse Z of their
// matrix, one pass over the keys that accumulates G_U [V 1], and one pass over the queries. It
// needs O(m (d + e + m)) memory. For half and bfloat16 with at most 16 landmarks and 32 channels,
// the passes run on tensor cores (landmark_tensor.h).
//
// Cost, with S bytes per element: (2d + 2e) S bytes per token and head, and 2d S more if q and k of
// the window are evicted from the caches between pooling and the passes; 4 m (d + e) FLOPs and 2 m
// exponentials per token and head, m^2 additions more for the guard; iterations * 8 m^3 FLOPs per
// window and head. At m = 16 and d = e = 32 that is 4,096 FLOPs for 512 bytes of float or 256 of
// half. On tensor cores it is 10,752 FLOPs in tf32, since split operands are multiplied two or
// three times; 32 tokens take about 1,650 instructions of a warp (counted in the code for sm_90),
// and 434 to pool them.
#include "kernels/window_nystrom.h"

#include "landmark_launch.h"

namespace nystra::cuda {

size_t window_nystrom_workspace(const WindowNystromParams& params, bool batch_init,
                                const LaunchLimits& limits) {
  return params.shape.windows() == 0 ? 0 : LandmarkPlan(params, limits).workspace(batch_init);
}

Status window_nystrom(const WindowNystromParams& params, bool batch_init, Type type,
                      const void* qkv, void* out, void* workspace, Stream stream,
                      const LaunchLimits& limits) {
  return launch_landmarks<Form::kKernel>(params, batch_init, type, qkv, out, workspace, stream,
                                         limits);
}

}  // namespace nystra::cuda
