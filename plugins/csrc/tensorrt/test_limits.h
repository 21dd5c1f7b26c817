// What tests allow a launch: on a large device, the paths of a small one.
#pragma once

#include "kernels/cuda_launch.h"

namespace nystra::trt {

// NYSTRA_CUDA_LIMITS=shared=BYTES,warps=N,blocks=N, any of them; else what every device has. Throws
// Refusal where the variable holds anything else.
const cuda::LaunchLimits& test_limits();

}  // namespace nystra::trt
