// The few entries of ONNX Runtime's C ABI that the operators use, declared here: no registry ships
// the C headers, and the ABI is append-only, so one library serves every onnxruntime from 1.20 on,
// the oldest that is tested. ort_abi_check.cc compares this with the official header where a build
// has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nystra::ort {

struct Status;
struct SessionOptions;
struct Domain;
struct KernelInfo;
struct KernelContext;
struct Value;
struct TensorInfo;
struct Allocator;
struct MemoryInfo;

constexpr uint32_t kApiVersion = 17;        // the lowest with all of NYSTRA_ORT_ENTRIES
constexpr uint32_t kDeviceApiVersion = 18;  // the lowest with NYSTRA_ORT_DEVICE_ENTRIES too

constexpr int kFail = 1, kInvalidArgument = 2;                        // codes of a status
constexpr int kFloat = 1, kInt32 = 6, kFloat16 = 10, kBfloat16 = 16;  // element types
constexpr int kRequired = 0;       // characteristic of an input or output
constexpr int kDefaultMemory = 0;  // the provider's own: on a GPU the device's

struct CustomOp;

// X(position in OrtApi, name, result, (parameters)). A null status is success.
#define NYSTRA_ORT_ENTRIES(X)                                                                    \
  X(0, CreateStatus, Status*, (int code, const char* message))                                   \
  X(2, GetErrorMessage, const char*, (const Status*))                                            \
  X(26, CreateCustomOpDomain, Status*, (const char* name, Domain** out))                         \
  X(27, CustomOpDomain_Add, Status*, (Domain*, const CustomOp*))                                 \
  X(28, AddCustomOpDomain, Status*, (SessionOptions*, Domain*))                                  \
  X(51, GetTensorMutableData, Status*, (Value*, void** out))                                     \
  X(60, GetTensorElementType, Status*, (const TensorInfo*, int* out))                            \
  X(61, GetDimensionsCount, Status*, (const TensorInfo*, size_t* out))                           \
  X(62, GetDimensions, Status*, (const TensorInfo*, int64_t* out, size_t count))                 \
  X(65, GetTensorTypeAndShape, Status*, (const Value*, TensorInfo** out))                        \
  X(85, KernelInfoGetAttribute_float, Status*, (const KernelInfo*, const char*, float* out))     \
  X(86, KernelInfoGetAttribute_int64, Status*, (const KernelInfo*, const char*, int64_t* out))   \
  X(90, KernelContext_GetInput, Status*, (const KernelContext*, size_t, const Value** out))      \
  X(91, KernelContext_GetOutput, Status*,                                                        \
    (KernelContext*, size_t, const int64_t* dimensions, size_t rank, Value** out))               \
  X(93, ReleaseStatus, void, (Status*))                                                          \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo*))                                      \
  X(101, ReleaseCustomOpDomain, void, (Domain*))                                                 \
  X(274, KernelContext_ParallelFor, Status*,                                                     \
    (const KernelContext*, void (*task)(void* user, size_t index), size_t total, size_t batches, \
     void* user))

// What operators on a GPU use besides.
#define NYSTRA_ORT_DEVICE_ENTRIES(X)                                                     \
  X(76, AllocatorFree, Status*, (Allocator*, void*))                                     \
  X(77, AllocatorGetInfo, Status*, (const Allocator*, const MemoryInfo** out))           \
  X(132, ReleaseAllocator, void, (Allocator*))                                           \
  X(193, KernelContext_GetGPUComputeStream, Status*, (const KernelContext*, void** out)) \
  X(277, KernelContext_GetScratchBuffer, Status*,                                        \
    (const KernelContext*, const MemoryInfo*, size_t bytes, void** out))                 \
  X(278, KernelInfoGetAllocator, Status*, (const KernelInfo*, int memory_type, Allocator** out))

struct Api {
#define NYSTRA_ORT_MEMBER(position, name, result, parameters) result(*name) parameters = nullptr;
  NYSTRA_ORT_ENTRIES(NYSTRA_ORT_MEMBER)
  NYSTRA_ORT_DEVICE_ENTRIES(NYSTRA_ORT_MEMBER)  // null in a library without such operators
#undef NYSTRA_ORT_MEMBER
};

using Table = void (*const*)();  // OrtApi as the runtime gives it

struct ApiBase {
  Table (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const Table*, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void* kernel, KernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const CustomOp*, size_t);
  int (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const Table*, const KernelInfo*, void** kernel);
  Status* (*KernelComputeV2)(void* kernel, KernelContext*);
  void* InferOutputShapeFn;
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int** inputs, int** outputs);
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  size_t (*GetAliasMap)(int** inputs, int** outputs);
  void (*ReleaseAliasMap)(int* inputs, int* outputs);
};

}  // namespace nystra::ort
