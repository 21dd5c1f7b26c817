// The operators registered with one onnxruntime, and their registration by a library.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "binding.h"

namespace nystra::ort {

// The operator domain with its operators. It outlives every session of its onnxruntime.
class Registration {
 public:
  // Reads the entries of `version` of the table, creates the domain. Throws if that fails.
  Registration(Table table, uint32_t version);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Adds an operator for a device, in every type of the device.
  template <class Operator, class Device>
  void add() {
    for (const Type type : Device::kTypes)
      add(std::make_shared<Registered<Operator, Device>>(api, type));
  }

  const Table table;
  const Api api;
  Domain* domain = nullptr;
  std::vector<std::shared_ptr<CustomOp>> operators;

 private:
  void add(std::shared_ptr<CustomOp> op);
};

// Throws Refusal if NYSTRA_CPU_ISA is not available. Inline: a library without the kernels of the
// CPU does not call it.
inline void require_cpu_kernels() {
  if (kernels() != nullptr) return;
  const std::string forced = std::getenv("NYSTRA_CPU_ISA");
  throw Refusal("NYSTRA_CPU_ISA is '" + forced +
                "'; expected generic, avx2, avx512, avx512_bf16 or amx, one that this CPU and "
                "this build have");
}

// The implementation of RegisterCustomOps: registers the operators of `add`, once for each
// onnxruntime of the process. `version` is the lowest of its API with everything that the operators
// use.
Status* register_operators(SessionOptions*, const ApiBase*, uint32_t version,
                           void (*add)(Registration&)) noexcept;

}  // namespace nystra::ort
