#include "binding.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/windows.h"

namespace nystra::ort {

void WindowSoftmax::compute(const CudaCall& call) const {
  const Tensor qkv = call.input(0), table = call.input(1);
  const WindowShape shape = with_inputs(qkv, table);
  void* const out = call.output(0, output_shape(shape));
  if (is_empty(shape)) return;
  const void* const bias = bias_ ? table.data : nullptr;
  call.launch(cuda::window_softmax_workspace(shape), [&](void* workspace, cuda::Stream stream) {
    return cuda::window_softmax(shape, call.type, qkv.data, bias, out, workspace, stream);
  });
}

}  // namespace nystra::ort
