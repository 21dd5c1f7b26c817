// The kernels of NystraWindowCovariance, attention with clustered keys and their covariance with
// the values: qkv (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU it is NystraWindowCluster's.
#pragma once

#include "window_cluster.h"

namespace nystra {

#define NYSTRA_WINDOW_COVARIANCE_CPU(X)

}  // namespace nystra
