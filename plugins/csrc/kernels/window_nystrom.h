// The kernels of NystraWindowNystrom: qkv (B, H, W, h(2d+e)) to (B, H, W, h e).
#pragma once

#include "cuda_launch.h"
#include "landmark_params.h"

namespace nystra {

struct WindowNystromParams : LandmarkParams {
  float threshold, guard;
};

#define NYSTRA_WINDOW_NYSTROM_CPU(X)                                                   \
  X(int64_t, window_nystrom_scratch, (const WindowNystromParams&))                     \
  X(Status, window_nystrom_maxima,                                                     \
    (const WindowNystromParams&, Type, const void* qkv, int64_t first, int64_t last,   \
     float* scratch, BatchMaxima* result))                                             \
  X(Status, window_nystrom,                                                            \
    (const WindowNystromParams&, Type, const void* qkv, const BatchMaxima&, void* out, \
     int64_t first, int64_t last, float* scratch))

namespace cuda {

// To kMaxLandmarks landmarks.
size_t window_nystrom_workspace(const WindowNystromParams& params, bool batch_init,
                                const LaunchLimits& limits = {});
Status window_nystrom(const WindowNystromParams& params, bool batch_init, Type type,
                      const void* qkv, void* out, void* workspace, Stream stream,
                      const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
