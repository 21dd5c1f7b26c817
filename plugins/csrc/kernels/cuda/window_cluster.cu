// NystraWindowCluster on CUDA: not there yet, every call is refused.
#include "kernels_cuda.h"

namespace nystra::cuda {

size_t window_cluster_workspace(const ClusterParams&, const Limits&) { return 0; }

Status window_cluster(const ClusterParams&, Type, const void*, const void*, void*, void*, Stream,
                      const Limits&) {
  return Status::kUnsupported;
}

}  // namespace nystra::cuda
