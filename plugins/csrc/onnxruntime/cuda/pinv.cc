#include "binding.h"
#include "onnxruntime/operators.h"

namespace nystra::ort {

void Pinv::compute(const CudaCall& call) const {
  const Tensor a = call.input(0);
  const PinvParams params = with_matrices(a);
  void* const z = call.output(0, a.shape);
  if (params.matrices == 0) return;
  call.launch(cuda::pinv_workspace(params, batch_init_), [&](void* workspace, cuda::Stream stream) {
    return cuda::pinv(params, batch_init_, call.type, a.data, z, workspace, stream);
  });
}

}  // namespace nystra::ort
