// The onnxruntime binding of the CUDA kernels on the host: a custom-op library whose CUDA operators
// run under the CPU provider on the emulated kernels. tests/helpers/ort_cuda_tools.py builds it.
//
// Stream and workspace come from here in place of the runtime: a stream of its own that every
// launch must name, and for each call a workspace of exactly the bytes requested, full of NaN,
// between guards. NYSTRA_FAULT plants a fault in what the runtime would give.
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "block_emulator.h"
#include "onnxruntime/cuda/binding.h"
#include "onnxruntime/registration.h"

namespace {

using namespace nystra::ort;
using Entry = void (*)();

constexpr size_t kEntries = 279;  // of OrtApi, to the last that the binding uses
constexpr size_t kGuard = 256;

struct Workspace {
  size_t bytes, usable;  // requested; the same, or room for one float where a fault is planted
};

std::map<unsigned char*, Workspace> workspaces;  // in use
long handed_out = 0, node_allocators = 0;
Entry table[kEntries];
Api runtime;
CUstream_st* const stream = reinterpret_cast<CUstream_st*>(&handed_out);

bool fault(const char* name) {
  const char* const planted = std::getenv("NYSTRA_FAULT");
  return planted != nullptr && std::string(planted) == name;
}

Status* failed(const std::string& text) { return runtime.CreateStatus(kFail, text.c_str()); }

Status* give_stream(const KernelContext*, void** out) {
  *out = fault("no stream") ? nullptr : fault("stream") ? static_cast<void*>(&runtime) : stream;
  return nullptr;
}

Status* give_workspace(const KernelContext*, const MemoryInfo* memory, size_t bytes, void** out) {
  if (fault("throws")) throw std::runtime_error("Failed to allocate memory for requested buffer");
  if (fault("no memory")) return failed("no memory");
  if (memory == nullptr || bytes == 0) return failed("a workspace of no memory or no bytes");
  const size_t whole = (bytes + 2 * kGuard + 255) / 256 * 256;
  auto* const block = static_cast<unsigned char*>(std::aligned_alloc(256, whole));
  std::memset(block, 0xff, whole);  // guards and workspace: NaN
  workspaces[block + kGuard] = {bytes, fault("workspace") ? sizeof(float) : bytes};
  ++handed_out;
  *out = fault("null workspace") ? nullptr : block + kGuard;
  return nullptr;
}

Status* take_workspace(Allocator* allocator, void* memory) {
  auto* const start = static_cast<unsigned char*>(memory);
  const auto found = workspaces.find(start);
  if (allocator == nullptr || found == workspaces.end())
    return failed("a workspace that was not allocated");
  const Workspace found_here = found->second;
  workspaces.erase(found);
  bool whole = true;
  for (size_t i = 1; i <= kGuard; ++i) whole = whole && *(start - i) == 0xff;
  for (size_t i = found_here.usable; i < found_here.bytes + kGuard; ++i)
    whole = whole && start[i] == 0xff;
  std::free(start - kGuard);
  return whole ? nullptr : failed("a workspace was written beyond its end");
}

Status* give_allocator(const KernelInfo* info, int type, Allocator** out) {
  ++node_allocators;
  return runtime.KernelInfoGetAllocator(info, type, out);
}

void release_allocator(Allocator* allocator) {
  --node_allocators;
  runtime.ReleaseAllocator(allocator);
}

Status* give_output(KernelContext* context, size_t index, const int64_t* sizes, size_t rank,
                    Value** out) {
  std::vector<int64_t> shape(sizes, sizes + rank);
  if (fault("shape")) ++shape.back();
  return runtime.KernelContext_GetOutput(context, index, shape.data(), rank, out);
}

Table emulated(Table original) {
  std::copy(original, original + kEntries, table);
#define TAKE(position, name, result, parameters) \
  runtime.name = reinterpret_cast<result(*) parameters>(original[position]);
  NYSTRA_ORT_ENTRIES(TAKE)
  NYSTRA_ORT_DEVICE_ENTRIES(TAKE)
#undef TAKE
  table[76] = reinterpret_cast<Entry>(take_workspace);
  table[91] = reinterpret_cast<Entry>(give_output);
  table[132] = reinterpret_cast<Entry>(release_allocator);
  table[193] = reinterpret_cast<Entry>(give_stream);
  table[277] = reinterpret_cast<Entry>(give_workspace);
  table[278] = reinterpret_cast<Entry>(give_allocator);
  emu::state.stream = stream;
  return table;
}

const ApiBase* official = nullptr;

Table emulated_api(uint32_t version) {
  const Table original = official->GetApi(version);
  if (version == 1 || original == nullptr) return original;
  return emulated(original);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// What is left of what the binding took: workspaces in use and allocators of nodes; and how many
// workspaces there were.
EXPORTED void emulated_use(long* in_use, long* allocators, long* workspaces_handed_out) {
  *in_use = long(workspaces.size());
  *allocators = node_allocators;
  *workspaces_handed_out = handed_out;
}

EXPORTED Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  official = base;
  const ApiBase patched{emulated_api, base->GetVersionString};
  return register_operators(options, &patched, kDeviceApiVersion, [](Registration& registration) {
    add_cuda_operators(registration);
    for (const auto& one : registration.operators) {
      if (std::string(one->GetExecutionProviderType(one.get())) != "CUDAExecutionProvider")
        throw std::runtime_error("an operator is not of the CUDA provider");
      for (size_t i = 0; i < one->GetInputTypeCount(one.get()); ++i)
        if (one->GetInputMemoryType(one.get(), i) != kDefaultMemory)
          throw std::runtime_error("an input is not in device memory");
      one->GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
    }
  });
}
