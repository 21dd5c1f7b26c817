// The seam between ONNX Runtime and the kernels: attributes, tensors, threads, and OrtCustomOp.
//
// An operator is a class with `static constexpr const char* kName`, `kInputs`, a constructor from
// Attributes and for each device `void compute(const CpuCall&) const`, `... (const CudaCall&)
// const`. All may throw Refusal; nothing thrown leaves this header's entry points. A call of a
// device says under which provider onnxruntime knows it (kProvider; null: the CPU) and what a node
// keeps of it (Device). cuda/binding.h has that of CUDA.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "ort_abi.h"

namespace nystra::ort {

// Bad input; the message says what was got and expected. The operator's name is added outside.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string shape_text(const std::vector<int64_t>& shape);

// Throws where a call of the runtime failed. The status is released.
void check(const Api& api, Status* status, const char* what);

// The attributes of a node. Reading checks presence and range.
class Attributes {
 public:
  Attributes(const Api& api, const KernelInfo* info) : api_(api), info_(info) {}

  int64_t integer(const char* name, int64_t minimum, int64_t maximum) const;
  float number(const char* name, float minimum, float maximum) const;

  // Refuses any revision but the one these kernels were written for.
  void check_revision() const;

 private:
  const Api& api_;
  const KernelInfo* info_;
};

struct Tensor {
  const void* data;
  std::vector<int64_t> shape;
};

// One run of a node: what is the same on every device. Data lie in the device's memory.
class Call {
 public:
  Tensor input(size_t index) const;
  void* output(size_t index, const std::vector<int64_t>& shape) const;

  const Type type;

 protected:
  Call(const Api& api, KernelContext* context, Type type)
      : type(type), api_(api), context_(context) {}

  const Api& api_;
  KernelContext* context_;
};

// One run on the CPU.
class CpuCall : public Call {
 public:
  static constexpr const char* kProvider = nullptr;

  struct Device {
    Device(const Api&, const KernelInfo*) {}
  };

  CpuCall(const Api& api, KernelContext* context, Type type, const Device&)
      : Call(api, context, type) {}

  // Runs tasks 0..tasks-1 on the session's threads: work(first, last, scratch of `floats`).
  // Throws where one of them fails.
  template <class Work>
  void parallel(int64_t tasks, int64_t floats, const Work& work) const {
    const auto run = [](const void* w, int64_t first, int64_t last, float* scratch) {
      return (*static_cast<const Work*>(w))(first, last, scratch);
    };
    parallel_tasks(tasks, floats, run, &work);
  }

 private:
  using Run = nystra::Status (*)(const void* work, int64_t first, int64_t last, float* scratch);
  void parallel_tasks(int64_t tasks, int64_t floats, Run run, const void* work) const;
};

// The maxima of all tasks: find(first, last, scratch, here) merges those of some into `here`.
template <class Find>
BatchMaxima batch_maxima(const CpuCall& call, int64_t tasks, int64_t floats, const Find& find) {
  std::mutex mutex;
  BatchMaxima all = kOwnMaxima;
  call.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
    BatchMaxima here = kOwnMaxima;
    const nystra::Status status = find(first, last, scratch, &here);
    const std::lock_guard<std::mutex> lock(mutex);
    merge(here, &all);
    return status;
  });
  return all;
}

// Memory for `floats` floats, aligned to 64 bytes. Throws std::bad_alloc.
class AlignedFloats {
 public:
  explicit AlignedFloats(size_t floats);
  ~AlignedFloats();
  AlignedFloats(const AlignedFloats&) = delete;
  AlignedFloats& operator=(const AlignedFloats&) = delete;

  float* get() const { return data_; }

 private:
  float* data_;
};

// Creates a status for what is being thrown. To be called in a handler.
Status* caught(const Api& api, const char* name);

// How many outputs an operator has, and the element types of inputs and outputs where `type` is the
// one it is registered for. Operators that are not all of one type specialise it.
template <class Operator>
struct Signature {
  static constexpr size_t kOutputs = 1;
  static constexpr int input(size_t, int type) { return type; }
  static constexpr int output(size_t, int type) { return type; }
};

// An OrtCustomOp of an operator on a device for one element type.
template <class Operator, class Call>
class Registered : public CustomOp {
 public:
  Registered(const Api& api, Type type) : CustomOp{}, api_(api), type_(type) {
    version = kApiVersion;
    GetName = [](const CustomOp*) { return Operator::kName; };
    GetExecutionProviderType = [](const CustomOp*) -> const char* { return Call::kProvider; };
    GetInputType = [](const CustomOp* op, size_t i) {
      return Signature<Operator>::input(i, self(op).element_type());
    };
    GetInputTypeCount = [](const CustomOp*) -> size_t { return Operator::kInputs; };
    GetOutputType = [](const CustomOp* op, size_t i) {
      return Signature<Operator>::output(i, self(op).element_type());
    };
    GetOutputTypeCount = [](const CustomOp*) { return Signature<Operator>::kOutputs; };
    GetInputCharacteristic = [](const CustomOp*, size_t) { return kRequired; };
    GetOutputCharacteristic = [](const CustomOp*, size_t) { return kRequired; };
    GetInputMemoryType = [](const CustomOp*, size_t) { return kDefaultMemory; };
    GetVariadicInputMinArity = [](const CustomOp*) { return 1; };
    GetVariadicInputHomogeneity = [](const CustomOp*) { return 1; };
    GetVariadicOutputMinArity = [](const CustomOp*) { return 1; };
    GetVariadicOutputHomogeneity = [](const CustomOp*) { return 1; };
    GetStartVersion = [](const CustomOp*) { return 1; };
    GetEndVersion = [](const CustomOp*) { return 1; };
    CreateKernelV2 = create;
    KernelComputeV2 = compute;
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  }

 private:
  struct Kernel {
    const Registered& op;
    Operator work;
    typename Call::Device device;
  };

  static const Registered& self(const CustomOp* op) { return *static_cast<const Registered*>(op); }
  int element_type() const {
    return type_ == Type::kFloat ? kFloat : type_ == Type::kHalf ? kFloat16 : kBfloat16;
  }

  static Status* create(const CustomOp* op, const Table*, const KernelInfo* info, void** kernel) {
    const Registered& registered = self(op);
    try {
      const Attributes attributes(registered.api_, info);
      attributes.check_revision();
      *kernel = new Kernel{registered, Operator(attributes),
                           typename Call::Device(registered.api_, info)};
      return nullptr;
    } catch (...) {
      return caught(registered.api_, Operator::kName);
    }
  }

  static Status* compute(void* kernel, KernelContext* context) {
    const Kernel& k = *static_cast<const Kernel*>(kernel);
    try {
      k.work.compute(Call(k.op.api_, context, k.op.type_, k.device));
      return nullptr;
    } catch (...) {
      return caught(k.op.api_, Operator::kName);
    }
  }

  const Api& api_;
  const Type type_;
};

}  // namespace nystra::ort
