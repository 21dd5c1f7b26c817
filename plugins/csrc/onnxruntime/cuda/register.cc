// RegisterCustomOps of libnystra_onnxruntime_cuda: the operators on the CPU and on CUDA devices.
#include "onnxruntime/registration.h"

extern "C" __attribute__((visibility("default"))) nystra::ort::Status* RegisterCustomOps(
    nystra::ort::SessionOptions* options, const nystra::ort::ApiBase* base) {
  using namespace nystra::ort;
  return register_operators(options, base, kDeviceApiVersion, [](Registration& registration) {
    add_cpu_operators(registration);
    add_cuda_operators(registration);
  });
}
