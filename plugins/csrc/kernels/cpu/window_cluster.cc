// NystraWindowCluster: attention with clustered keys in the windows of a shifted map.
#include "isa.h"

namespace nystra::NYSTRA_ISA {

int64_t window_cluster_scratch(const ClusterParams&) { return 1; }

int64_t window_cluster_bias_size(const ClusterParams&) { return 1; }

void window_cluster_bias(const ClusterParams&, Type, const void*, float*) {}

Status window_cluster(const WindowClusterParams&, Type, const void*, void*, int64_t, int64_t,
                      float*) {
  return Status::kUnsupported;
}

}  // namespace nystra::NYSTRA_ISA
