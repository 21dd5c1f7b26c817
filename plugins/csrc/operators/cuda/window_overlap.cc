#include "launch.h"

namespace nystra::cuda {

size_t workspace(const WindowOverlap& op, const Shape* in) {
  return window_overlap_workspace(op.params(in));
}

Status launch(const WindowOverlap& op, const Tensors& t, void* workspace, Stream stream) {
  const void* const table = op.bias() ? t.inputs[1] : nullptr;
  return window_overlap(op.params(t.shapes), t.type, t.inputs[0], table, t.outputs[0], workspace,
                        stream);
}

}  // namespace nystra::cuda
