#include "binding.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/windows.h"

namespace nystra::ort {

struct LandmarkWindows::CudaKernels {
  decltype(&cuda::window_nystrom_workspace) workspace;
  decltype(&cuda::window_nystrom) run;
};

void LandmarkWindows::compute(const CudaCall& call, const CudaKernels& k) const {
  const Tensor qkv = call.input(0);
  const LandmarkParams params = with_map(qkv);
  void* const out = call.output(0, output_shape(params.shape));
  if (is_empty(params.shape)) return;
  const size_t bytes = k.workspace(params, batch_init_, {});
  call.launch(bytes, [&](void* workspace, cuda::Stream stream) {
    return k.run(params, batch_init_, call.type, qkv.data, out, workspace, stream, {});
  });
}

void WindowNystrom::compute(const CudaCall& call) const {
  LandmarkWindows::compute(call, {cuda::window_nystrom_workspace, cuda::window_nystrom});
}

void WindowNystromformer::compute(const CudaCall& call) const {
  LandmarkWindows::compute(call,
                           {cuda::window_nystromformer_workspace, cuda::window_nystromformer});
}

}  // namespace nystra::ort
