// Limits of a launch in tests: the code paths of a small device on a large one.
#pragma once

#include "kernels/cuda_launch.h"

namespace nystra::trt {

// NYSTRA_CUDA_LIMITS=shared=BYTES,warps=N,blocks=N, any of them; otherwise the limits of every
// device. Throws Refusal if the variable has another form.
const cuda::LaunchLimits& test_limits();

}  // namespace nystra::trt
