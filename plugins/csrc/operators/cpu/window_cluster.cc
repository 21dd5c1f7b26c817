#include "compute.h"

namespace nystra::cpu {

void compute(const WindowCluster& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  const ClusterParams cluster = op.params(t.shapes);
  const AlignedFloats bias{size_t(k.window_cluster_bias_size(cluster))};
  k.window_cluster_bias(cluster, t.type, op.bias() ? t.inputs[1] : nullptr, bias.get());
  const WindowClusterParams params{cluster, bias.get()};
  threads.parallel(cluster.shape.windows() * cluster.shape.heads, k.window_cluster_scratch(cluster),
                   [&](int64_t first, int64_t last, float* scratch) {
                     return k.window_cluster(params, t.type, t.inputs[0], t.outputs[0], first, last,
                                             scratch);
                   });
}

}  // namespace nystra::cpu
