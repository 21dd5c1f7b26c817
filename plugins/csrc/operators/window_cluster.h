// NystraWindowCluster: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_cluster.h"
#include "windows.h"

namespace nystra {

class WindowCluster {
 public:
  static constexpr const Schema& kSchema = kWindowClusterSchema;

  explicit WindowCluster(const Attributes&, bool covariance = false);

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  ClusterParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

 private:
  Windows windows_;
  ClusterParams params_{};
  bool bias_;
};

}  // namespace nystra
