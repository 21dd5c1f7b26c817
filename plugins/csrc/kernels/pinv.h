// The kernels of NystraPinv: Z (matrices, m, m) of A (matrices, m, m), m = size.
#pragma once

#include "batch_maxima.h"
#include "cuda_launch.h"

namespace nystra {

struct PinvParams {
  int64_t matrices, size, iterations;
};

#define NYSTRA_PINV_CPU(X)                                                                \
  X(int64_t, pinv_scratch, (const PinvParams&))                                           \
  X(Status, pinv_maxima,                                                                  \
    (const PinvParams&, Type, const void* a, int64_t first, int64_t last, float* scratch, \
     BatchMaxima* result))                                                                \
  X(Status, pinv,                                                                         \
    (const PinvParams&, Type, const void* a, const BatchMaxima&, void* z, int64_t first,  \
     int64_t last, float* scratch))

namespace cuda {

// m to kMaxPinvSize. batch_init: the maxima of the start value run over all matrices.
size_t pinv_workspace(const PinvParams& params, bool batch_init, const LaunchLimits& limits = {});
Status pinv(const PinvParams& params, bool batch_init, Type type, const void* a, void* z,
            void* workspace, Stream stream, const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
