// The binding of the CUDA operators to ONNX Runtime's CUDA provider.
#pragma once

#include "onnxruntime/registration.h"

namespace nystra::ort {

// A CUDA device, with the allocator of the session's device memory for as long as the node lives. A
// run enqueues work on its stream and returns: it only allocates memory of onnxruntime, and does
// not wait.
class CudaDevice {
 public:
  static constexpr const char* kProvider = "CUDAExecutionProvider";
  static constexpr Type kTypes[] = {Type::kFloat, Type::kHalf, Type::kBfloat16};

  CudaDevice(const Api& api, const KernelInfo* info);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  template <class Operator>
  void compute(const Operator& op, const Tensors& tensors, KernelContext* context) const {
    const auto launch = [&](void* workspace, cuda::Stream stream) {
      return op.launch(tensors, workspace, stream);
    };
    launch_with(context, op.workspace(tensors.shapes, tensors.type), launch);
  }

 private:
  using Launch = std::function<nystra::Status(void* workspace, cuda::Stream)>;
  void launch_with(KernelContext* context, size_t bytes, const Launch& launch) const;

  const Api& api_;
  Allocator* allocator_ = nullptr;
  const MemoryInfo* memory_ = nullptr;  // part of the allocator
};

// Adds the operators that have a CUDA kernel.
void add_cuda_operators(Registration&);

}  // namespace nystra::ort
