#include "binding.h"

namespace nystra::ort {
namespace {

void require_ok(nystra::Status status) {
  switch (status) {
    case nystra::Status::kOk: return;
    case nystra::Status::kNoScratch:
      throw std::runtime_error("the kernel needs a workspace and got none");
    case nystra::Status::kUnsupported: throw Refusal("sizes that the kernel does not support");
    case nystra::Status::kLaunch:
      throw std::runtime_error(
          "CUDA refused to launch the kernel: there is no device, the driver is too old for this "
          "library, the library has no code for this GPU, or an earlier kernel failed");
  }
}

}  // namespace

void add_cuda_operators(Registration& registration) {
#define NYSTRA_ADD(Operator) registration.add<Operator, CudaDevice>();
  NYSTRA_CUDA_OPERATORS(NYSTRA_ADD)
#undef NYSTRA_ADD
}

CudaDevice::CudaDevice(const Api& api, const KernelInfo* info) : api_(api) {
  check(api, api.KernelInfoGetAllocator(info, kDefaultMemory, &allocator_),
        "return the allocator of device memory");
  if (Status* const status = api.AllocatorGetInfo(allocator_, &memory_)) {
    api.ReleaseAllocator(allocator_);
    check(api, status, "describe the allocator of device memory");
  }
}

CudaDevice::~CudaDevice() { api_.ReleaseAllocator(allocator_); }

void CudaDevice::launch_with(KernelContext* context, size_t bytes, const Launch& launch) const {
  void* stream = nullptr;
  check(api_, api_.KernelContext_GetGPUComputeStream(context, &stream), "return its CUDA stream");
  if (stream == nullptr) throw std::runtime_error("onnxruntime returned no CUDA stream");
  if (bytes == 0) return require_ok(launch(nullptr, stream));

  // Memory of the arena, bound to the stream: it is released as soon as the work is on the stream,
  // and reused only by later work of that stream, or by another stream that waits for it. If there
  // is none left, onnxruntime throws through its C interface.
  void* workspace = nullptr;
  const std::string what = "allocate " + std::to_string(bytes) + " bytes of device memory";
  check(api_, api_.KernelContext_GetScratchBuffer(context, memory_, bytes, &workspace),
        what.c_str());
  if (workspace == nullptr) throw std::runtime_error("onnxruntime failed to " + what);
  const nystra::Status status = launch(workspace, stream);
  check(api_, api_.AllocatorFree(allocator_, workspace), "free its device memory");
  require_ok(status);
}

}  // namespace nystra::ort
