// NystraWindowCluster: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "kernels/window_cluster.h"
#include "windows.h"

namespace nystra {

class WindowCluster {
 public:
  static constexpr const Schema& kSchema = kWindowClusterSchema;

  explicit WindowCluster(const Attributes&);

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  ClusterParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_cluster_workspace(params(in), bias_, limits);
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::window_cluster(params(t.shapes), t.type, t.inputs[0],
                                bias_ ? t.inputs[1] : nullptr, t.outputs[0], workspace, stream,
                                limits);
  }

 private:
  Windows windows_;
  ClusterParams params_{};
  bool bias_;
};

}  // namespace nystra
