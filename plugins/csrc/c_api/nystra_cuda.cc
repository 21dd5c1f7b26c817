// The C interface of the CUDA kernels: no exception leaves it.
#include "export.h"
#define NYSTRA_CUDA_API NYSTRA_EXPORTED
#include "nystra_cuda.h"

#include "request.h"

namespace nystra::c_api {
namespace {

void require_ok(Status status) {
  switch (status) {
    case Status::kOk: return;
    case Status::kNoScratch: throw Refusal("the call needs a workspace and got none");
    case Status::kUnsupported: throw Refusal("sizes that the kernel does not support");
    case Status::kLaunch:
      throw std::runtime_error(
          "CUDA refused to launch the kernel: there is no device, the driver is too old for this "
          "library, the library has no code for this GPU, or an earlier kernel failed");
  }
}

}  // namespace
}  // namespace nystra::c_api

int32_t nystra_cuda_interface(void) { return NYSTRA_CUDA_INTERFACE; }

const char* nystra_cuda_version(void) { return NYSTRA_VERSION; }

const char* nystra_cuda_error(void) { return nystra::c_api::last_error.c_str(); }

int32_t nystra_cuda_workspace(const char* name, const nystra_cpu_attribute* attributes,
                              size_t attribute_count, const nystra_cpu_tensor* inputs,
                              size_t input_count, size_t output_count, size_t* bytes) {
  using namespace nystra::c_api;
  const Request request{name, attributes, attribute_count, inputs, input_count, output_count};
  return guarded(name, [&] {
    check_list("attributes", attributes, attribute_count);
    check_list("inputs", inputs, input_count);
    check_list("bytes", bytes, 1);
    with_job(request, [&](const auto& job) {
      *bytes = job.empty() ? 0 : job.op().workspace(job.shapes(), job.element_type());
    });
  });
}

int32_t nystra_cuda_run(const char* name, const nystra_cpu_attribute* attributes,
                        size_t attribute_count, const nystra_cpu_tensor* inputs, size_t input_count,
                        const nystra_cpu_tensor* outputs, size_t output_count, void* workspace,
                        void* stream) {
  using namespace nystra::c_api;
  const Request request{name, attributes, attribute_count, inputs, input_count, output_count};
  return guarded(name, [&] {
    check_lists(request, outputs);
    with_job(request, [&](const auto& job) {
      job.run(outputs, [&](const auto& op, const nystra::Tensors& tensors) {
        require_ok(op.launch(tensors, workspace, stream));
      });
    });
  });
}
