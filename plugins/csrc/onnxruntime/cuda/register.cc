// RegisterCustomOps of libnystra_onnxruntime_cuda: the operators that have a CUDA kernel, on CUDA
// devices and on the CPU. The others are not registered: onnxruntime would run a kernel of the CPU
// and copy its tensors, in place of the body on the device.
#include "binding.h"
#include "export.h"

namespace nystra::ort {
namespace {

void add_operators(Registration& registration) {
  require_cpu_kernels();
#define NYSTRA_ADD(Operator) registration.add<Operator, CpuDevice>();
  NYSTRA_CUDA_OPERATORS(NYSTRA_ADD)
#undef NYSTRA_ADD
  add_cuda_operators(registration);
}

}  // namespace
}  // namespace nystra::ort

NYSTRA_EXPORT nystra::ort::Status* RegisterCustomOps(nystra::ort::SessionOptions* options,
                                                     const nystra::ort::ApiBase* base) {
  using namespace nystra::ort;
  return register_operators(options, base, kDeviceApiVersion, add_operators);
}
