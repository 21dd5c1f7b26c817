// NystraWindowCovariance: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_covariance.h"
#include "window_cluster.h"

namespace nystra {

class WindowCovariance : public WindowCluster {
 public:
  static constexpr const Schema& kSchema = kWindowCovarianceSchema;

  explicit WindowCovariance(const Attributes& a) : WindowCluster(a, true) {}
};

}  // namespace nystra
