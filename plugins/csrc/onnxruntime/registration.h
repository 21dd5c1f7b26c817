// The operators registered with one onnxruntime, and their registration by a library.
#pragma once

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

  // Adds every operator for a device.
  template <class Device>
  void add() {
#define NYSTRA_ADD(Operator)             \
  for (const Type type : Device::kTypes) \
    add(std::make_shared<Registered<Operator, Device>>(api, type));
    NYSTRA_OPERATORS(NYSTRA_ADD)
#undef NYSTRA_ADD
  }

  const Table table;
  const Api api;
  Domain* domain = nullptr;
  std::vector<std::shared_ptr<CustomOp>> operators;

 private:
  void add(std::shared_ptr<CustomOp> op);
};

// The operators of a device. The first throws Refusal if NYSTRA_CPU_ISA is not available.
void add_cpu_operators(Registration&);
void add_cuda_operators(Registration&);

// The implementation of RegisterCustomOps: registers the operators of `add`, once for each
// onnxruntime of the process. `version` is the lowest of its API with everything that the operators
// use.
Status* register_operators(SessionOptions*, const ApiBase*, uint32_t version,
                           void (*add)(Registration&)) noexcept;

}  // namespace nystra::ort
