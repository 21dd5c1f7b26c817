#include "launch.h"

namespace nystra::cuda {

size_t workspace(const Pinv& op, const Shape* in) {
  op.check(in);
  return pinv_workspace(op.params(in), op.batch_init());
}

Status launch(const Pinv& op, const Tensors& t, void* workspace, Stream stream) {
  return pinv(op.params(t.shapes), op.batch_init(), t.type, t.inputs[0], t.outputs[0], workspace,
              stream);
}

}  // namespace nystra::cuda
