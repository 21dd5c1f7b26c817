#include "launch.h"

namespace nystra::cuda {

// There is no CUDA kernel yet: the node is refused before anything is launched.
size_t workspace(const WindowCluster&, const Shape*) {
  throw Refusal("has no CUDA kernel in this version; run the file without the nystra library");
}

Status launch(const WindowCluster& op, const Tensors& t, void* workspace, Stream stream) {
  const void* const table = op.bias() ? t.inputs[1] : nullptr;
  return window_cluster(op.params(t.shapes), t.type, t.inputs[0], table, t.outputs[0], workspace,
                        stream);
}

}  // namespace nystra::cuda
