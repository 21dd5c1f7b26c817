// The operators as one onnxruntime knows them, and how a library registers them.
#pragma once

#include <memory>
#include <vector>

#include "binding.h"

namespace nystra::ort {

// The operator domain with its operators. It outlives every session of its onnxruntime.
class Registration {
 public:
  // Takes the entries of `version` of the table, creates the domain. Throws where that fails.
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

// The operators of a device. The first throws Refusal where NYSTRA_CPU_ISA cannot be served.
void add_cpu_operators(Registration&);
void add_cuda_operators(Registration&);

// What RegisterCustomOps of a library does: registers what `add` adds, once for each onnxruntime of
// the process. `version` is the lowest of its API that has what the operators use.
Status* register_operators(SessionOptions*, const ApiBase*, uint32_t version,
                           void (*add)(Registration&)) noexcept;

}  // namespace nystra::ort
