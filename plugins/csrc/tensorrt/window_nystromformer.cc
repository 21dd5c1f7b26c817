// NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#include "kernels/cuda/kernels_cuda.h"
#include "landmark_windows.h"
#include "operators.h"

namespace nystra::trt {
namespace {

const LandmarkWindows::Kernels kKernels = {
    [](const LandmarkParams& p, bool batch_init) {
      return cuda::window_nystromformer_workspace(p, batch_init);
    },
    [](const LandmarkParams& p, bool batch_init, const Call& c) {
      return cuda::window_nystromformer(p, batch_init, c.type, c.inputs[0], c.outputs[0],
                                        c.workspace, c.stream);
    }};

std::unique_ptr<const Operator> make(const Attributes& a) {
  const LandmarkParams params = landmark_attributes(a);
  return std::make_unique<LandmarkWindows>(params, a.integer("batch_init") != 0, kKernels);
}

}  // namespace

const Description& window_nystromformer() {
  static const Description description{"NystraWindowNystromformer", "T", "T",
                                       with_revision(landmark_table()), make};
  return description;
}

}  // namespace nystra::trt
