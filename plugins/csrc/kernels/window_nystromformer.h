// The kernels of NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "cuda_launch.h"
#include "landmark_params.h"

namespace nystra {

#define NYSTRA_WINDOW_NYSTROMFORMER_CPU(X)                                                       \
  X(int64_t, window_nystromformer_scratch, (const LandmarkParams&))                              \
  X(Status, window_nystromformer_maxima,                                                         \
    (const LandmarkParams&, Type, const void* qkv, int64_t first, int64_t last, float* scratch,  \
     BatchMaxima* result))                                                                       \
  X(Status, window_nystromformer,                                                                \
    (const LandmarkParams&, Type, const void* qkv, const BatchMaxima&, void* out, int64_t first, \
     int64_t last, float* scratch))

namespace cuda {

// To kMaxLandmarks landmarks.
size_t window_nystromformer_workspace(const LandmarkParams& params, bool batch_init,
                                      const LaunchLimits& limits = {});
Status window_nystromformer(const LandmarkParams& params, bool batch_init, Type type,
                            const void* qkv, void* out, void* workspace, Stream stream,
                            const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
