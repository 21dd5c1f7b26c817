// The binding of the operators to ONNX Runtime: attributes, tensors, threads, and OrtCustomOp.
//
// A device is a class with its provider in onnxruntime (kProvider; null: the CPU), the types it
// supports, a constructor from a node's KernelInfo, and compute(operator, tensors, context).
// CpuDevice is here, cuda/binding.h has that of CUDA. No exception leaves this header's entry
// points.
#pragma once

#include <cstring>
#include <string>

#include "operators/operators.h"
#include "ort_abi.h"

namespace nystra::ort {

// Throws if a call of the runtime failed. The status is released.
void check(const Api& api, Status* status, const char* what);

// Reads the attributes of a node. Throws Refusal if one is missing or of another type.
Attributes attributes(const Schema& schema, const Api& api, const KernelInfo* info);

// An input of a run.
struct Input {
  const void* data;
  Shape shape;
};

Input input(const Api& api, KernelContext* context, size_t index);
void* output(const Api& api, KernelContext* context, size_t index, const Shape& shape);

// The CPU, with the threads of the session.
class CpuDevice {
 public:
  static constexpr const char* kProvider = nullptr;
  static constexpr Type kTypes[] = {Type::kFloat, Type::kHalf};

  CpuDevice(const Api& api, const KernelInfo*) : api_(api) {}

  template <class Operator>
  void compute(const Operator& op, const Tensors& tensors, KernelContext* context) const {
    op.compute(tensors, SessionThreads(api_, context), *kernels());
  }

 private:
  class SessionThreads final : public Threads {
   public:
    SessionThreads(const Api& api, KernelContext* context) : api_(api), context_(context) {}

   private:
    int64_t count() const override;
    void run(int64_t workers, void (*work)(void*, size_t), void* user) const override;

    const Api& api_;
    KernelContext* context_;
  };

  const Api& api_;
};

// Creates a status for the current exception. To be called in a handler.
Status* caught(const Api& api, const char* name);

// An OrtCustomOp of an operator on a device for one element type.
template <class Operator, class Device>
class Registered : public CustomOp {
 public:
  Registered(const Api& api, Type type) : CustomOp{}, api_(api), type_(type) {
    version = kApiVersion;
    GetName = [](const CustomOp*) { return kSchema.name; };
    GetExecutionProviderType = [](const CustomOp*) -> const char* { return Device::kProvider; };
    GetInputType = [](const CustomOp* op, size_t i) { return self(op).type(kSchema.inputs[i]); };
    GetInputTypeCount = [](const CustomOp*) { return std::strlen(kSchema.inputs); };
    GetOutputType = [](const CustomOp* op, size_t i) { return self(op).type(kSchema.outputs[i]); };
    GetOutputTypeCount = [](const CustomOp*) { return std::strlen(kSchema.outputs); };
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
  static constexpr const Schema& kSchema = Operator::kSchema;

  struct Kernel {
    const Registered& op;
    Operator work;
    Device device;
  };

  static const Registered& self(const CustomOp* op) { return *static_cast<const Registered*>(op); }
  int type(char kind) const {
    if (kind == 'I') return kInt32;
    return type_ == Type::kFloat ? kFloat : type_ == Type::kHalf ? kFloat16 : kBfloat16;
  }

  static Status* create(const CustomOp* op, const Table*, const KernelInfo* info, void** kernel) {
    const Registered& registered = self(op);
    try {
      *kernel = new Kernel{registered, Operator(attributes(kSchema, registered.api_, info)),
                           Device(registered.api_, info)};
      return nullptr;
    } catch (...) {
      return caught(registered.api_, kSchema.name);
    }
  }

  static Status* compute(void* kernel, KernelContext* context) {
    const Kernel& k = *static_cast<const Kernel*>(kernel);
    const Api& api = k.op.api_;
    try {
      Shape shapes[kMaxTensors];
      const void* inputs[kMaxTensors];
      void* outputs[kMaxTensors];
      for (size_t i = 0; kSchema.inputs[i] != '\0'; ++i) {
        const Input tensor = input(api, context, i);
        inputs[i] = tensor.data;
        shapes[i] = tensor.shape;
      }
      k.work.check(shapes);
      for (size_t i = 0; kSchema.outputs[i] != '\0'; ++i)
        outputs[i] = output(api, context, i, k.work.output(int(i), shapes));
      if (!k.work.output(0, shapes).empty())
        k.device.compute(k.work, {k.op.type_, shapes, inputs, outputs}, context);
      return nullptr;
    } catch (...) {
      return caught(api, kSchema.name);
    }
  }

  const Api& api_;
  const Type type_;
};

}  // namespace nystra::ort
