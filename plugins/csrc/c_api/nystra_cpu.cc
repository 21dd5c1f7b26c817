// The C interface of the CPU kernels: no exception leaves it.
#include "export.h"
#define NYSTRA_CPU_API NYSTRA_EXPORTED
#include "nystra_cpu.h"

#include <cstdlib>

#include "request.h"
#include "thread_pool.h"

namespace nystra::c_api {
namespace {

template <class Job>
void run(const Job& job, const nystra_cpu_tensor* outputs, int32_t threads) {
  if (threads < 1) throw Refusal("threads is " + std::to_string(threads) + "; expected 1 or more");
  if (kernels() == nullptr)
    throw Refusal("NYSTRA_CPU_ISA is '" + std::string(std::getenv("NYSTRA_CPU_ISA")) +
                  "'; expected an instruction set that this CPU and this build have");
  job.run(outputs, [&](const auto& op, const Tensors& tensors) {
    op.compute(tensors, Call(threads), *kernels());
  });
}

}  // namespace
}  // namespace nystra::c_api

int32_t nystra_cpu_interface(void) { return NYSTRA_CPU_INTERFACE; }

const char* nystra_cpu_version(void) { return NYSTRA_VERSION; }

const char* nystra_cpu_error(void) { return nystra::c_api::last_error.c_str(); }

int32_t nystra_cpu_outputs(const char* name, const nystra_cpu_attribute* attributes,
                           size_t attribute_count, const nystra_cpu_tensor* inputs,
                           size_t input_count, nystra_cpu_tensor* outputs, size_t output_count) {
  using namespace nystra::c_api;
  const Request request{name, attributes, attribute_count, inputs, input_count, output_count};
  return guarded(name, [&] {
    check_lists(request, outputs);
    with_job(request, [&](const auto& job) { job.describe(outputs); });
  });
}

int32_t nystra_cpu_run(const char* name, const nystra_cpu_attribute* attributes,
                       size_t attribute_count, const nystra_cpu_tensor* inputs, size_t input_count,
                       const nystra_cpu_tensor* outputs, size_t output_count, int32_t threads) {
  using namespace nystra::c_api;
  const Request request{name, attributes, attribute_count, inputs, input_count, output_count};
  return guarded(name, [&] {
    check_lists(request, outputs);
    with_job(request, [&](const auto& job) { run(job, outputs, threads); });
  });
}
