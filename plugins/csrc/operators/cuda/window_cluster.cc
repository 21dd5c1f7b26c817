#include "launch.h"

namespace nystra::cuda {

size_t workspace(const WindowCluster& op, const Shape* in) {
  return window_cluster_workspace(op.params(in), op.bias());
}

Status launch(const WindowCluster& op, const Tensors& t, void* workspace, Stream stream) {
  const void* const table = op.bias() ? t.inputs[1] : nullptr;
  return window_cluster(op.params(t.shapes), t.type, t.inputs[0], table, t.outputs[0], workspace,
                        stream);
}

}  // namespace nystra::cuda
