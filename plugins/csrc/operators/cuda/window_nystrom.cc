#include "launch.h"

namespace nystra::cuda {

size_t workspace(const WindowNystrom& op, const Shape* in) {
  return window_nystrom_workspace(op.params(in), op.batch_init());
}

Status launch(const WindowNystrom& op, const Tensors& t, void* workspace, Stream stream) {
  return window_nystrom(op.params(t.shapes), op.batch_init(), t.type, t.inputs[0], t.outputs[0],
                        workspace, stream);
}

}  // namespace nystra::cuda
