// RegisterCustomOps of libnystra_onnxruntime, the entry point that onnxruntime looks for: the
// operators on the CPU.
#include "export.h"
#include "registration.h"

namespace nystra::ort {
namespace {

void add_cpu_operators(Registration& registration) {
  require_cpu_kernels();
#define NYSTRA_ADD(Operator) registration.add<Operator, CpuDevice>();
  NYSTRA_OPERATORS(NYSTRA_ADD)
#undef NYSTRA_ADD
}

}  // namespace
}  // namespace nystra::ort

NYSTRA_EXPORT nystra::ort::Status* RegisterCustomOps(nystra::ort::SessionOptions* options,
                                                     const nystra::ort::ApiBase* base) {
  using namespace nystra::ort;
  return register_operators(options, base, kApiVersion, add_cpu_operators);
}
