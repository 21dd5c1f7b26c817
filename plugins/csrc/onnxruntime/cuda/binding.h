// The seam between ONNX Runtime's CUDA provider and the CUDA kernels.
#pragma once

#include "kernels/cuda/kernels_cuda.h"
#include "onnxruntime/binding.h"

namespace nystra::ort {

// One run of a node on a CUDA device. It puts work on the stream of the run and returns: nothing is
// allocated beside onnxruntime's own memory, nothing waits.
class CudaCall : public Call {
 public:
  static constexpr const char* kProvider = "CUDAExecutionProvider";

  // The allocator of the session's device memory, for as long as the node lives.
  class Device {
   public:
    Device(const Api& api, const KernelInfo* info);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

   private:
    friend class CudaCall;

    const Api& api_;
    Allocator* allocator_ = nullptr;
    const MemoryInfo* memory_ = nullptr;  // part of the allocator
  };

  CudaCall(const Api& api, KernelContext* context, Type type, const Device& device)
      : Call(api, context, type), device_(device) {}

  // Runs launch(workspace of `bytes`, stream). Throws where it fails.
  template <class Launch>
  void launch(size_t bytes, const Launch& launch) const {
    const auto run = [](const void* l, void* workspace, cuda::Stream stream) {
      return (*static_cast<const Launch*>(l))(workspace, stream);
    };
    launch_with(bytes, run, &launch);
  }

 private:
  using Run = nystra::Status (*)(const void* launch, void* workspace, cuda::Stream);
  void launch_with(size_t bytes, Run run, const void* launch) const;

  const Device& device_;
};

}  // namespace nystra::ort
