#include "window_cluster.h"

namespace nystra {

WindowCluster::WindowCluster(const Attributes& a, bool covariance)
    : windows_(a), bias_(a.flag("bias")) {
  params_.shape = windows_.unplaced();
  params_.rows = a.integer("cluster_rows");
  params_.cols = a.integer("cluster_cols");
  params_.rounds = a.integer("rounds");
  params_.block = a.integer("block");
  params_.bias_block = a.integer("bias_block");
  params_.covariance = covariance;
}

void WindowCluster::check(const Shape* in) const {
  windows_.check(in[0]);
  if (bias_) windows_.check_bias_table(in[1]);
}

ClusterParams WindowCluster::params(const Shape* in) const {
  ClusterParams result = params_;
  result.shape = windows_.shape(in[0]);
  return result;
}

void WindowCluster::compute(const Tensors& t, const Threads& threads,
                            const Kernels& kernels) const {
  const ClusterParams cluster = params(t.shapes);
  const AlignedFloats bias{size_t(kernels.window_cluster_bias_size(cluster))};
  kernels.window_cluster_bias(cluster, t.type, bias_ ? t.inputs[1] : nullptr, bias.get());
  const WindowClusterParams p{cluster, bias.get()};
  threads.parallel(
      cluster.shape.windows() * cluster.shape.heads, kernels.window_cluster_scratch(cluster),
      [&](int64_t first, int64_t last, float* scratch) {
        return kernels.window_cluster(p, t.type, t.inputs[0], t.outputs[0], first, last, scratch);
      });
}

}  // namespace nystra
