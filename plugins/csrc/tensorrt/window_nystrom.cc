// NystraWindowNystrom: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#include "kernels/cuda/kernels_cuda.h"
#include "landmark_windows.h"
#include "operators.h"

namespace nystra::trt {
namespace {

const LandmarkWindows::Kernels kKernels = {
    [](const LandmarkParams& p, bool batch_init) {
      return cuda::window_nystrom_workspace(p, batch_init);
    },
    [](const LandmarkParams& p, bool batch_init, const Call& c) {
      return cuda::window_nystrom(p, batch_init, c.type, c.inputs[0], c.outputs[0], c.workspace,
                                  c.stream);
    }};

std::unique_ptr<const Operator> make(const Attributes& a) {
  LandmarkParams params = landmark_attributes(a);
  params.threshold = a.number("threshold");
  params.guard = a.number("guard");
  return std::make_unique<LandmarkWindows>(params, a.integer("batch_init") != 0, kKernels);
}

AttributeTable table() {
  AttributeTable result = landmark_table();
  result.push_back(number_attribute("threshold", -30.0, 30.0));
  result.push_back(number_attribute("guard", 0.0, 0.5));
  return with_revision(result);
}

}  // namespace

const Description& window_nystrom() {
  static const Description description{"NystraWindowNystrom", "T", "T", table(), make};
  return description;
}

}  // namespace nystra::trt
