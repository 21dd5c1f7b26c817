#include "launch.h"

namespace nystra::cuda {

size_t workspace(const WindowNystromformer& op, const Shape* in) {
  return window_nystromformer_workspace(op.params(in), op.batch_init());
}

Status launch(const WindowNystromformer& op, const Tensors& t, void* workspace, Stream stream) {
  return window_nystromformer(op.params(t.shapes), op.batch_init(), t.type, t.inputs[0],
                              t.outputs[0], workspace, stream);
}

}  // namespace nystra::cuda
