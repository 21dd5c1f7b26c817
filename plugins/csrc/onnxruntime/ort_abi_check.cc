// Compiled if NYSTRA_ORT_INCLUDE_DIR is given: checks ort_abi.h against the official header.
#include <onnxruntime_c_api.h>

#include <type_traits>

#include "ort_abi.h"

namespace nystra::ort {
namespace {

// Pointers are alike to a caller, and so are integers and enumerations of one size.
template <class A, class B>
constexpr bool kAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                        std::is_floating_point_v<A> == std::is_floating_point_v<B>;

template <class A, class B>
struct SameCall : std::false_type {};
template <class RA, class... A, class RB, class... B>
struct SameCall<RA (*)(A...), RB (*)(B...)> {
  static constexpr bool result() {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else if constexpr (std::is_void_v<RA> || std::is_void_v<RB>)
      return std::is_void_v<RA> && std::is_void_v<RB> && (kAlike<A, B> && ...);
    else
      return kAlike<RA, RB> && (kAlike<A, B> && ...);
  }
  static constexpr bool value = result();
};
template <class RA, class... A, class RB, class... B>
struct SameCall<RA (*)(A...), RB (*)(B...) noexcept> : SameCall<RA (*)(A...), RB (*)(B...)> {};

#pragma GCC diagnostic ignored "-Wignored-attributes"  // the header's warn_unused_result

#define CHECK_ENTRY(position, name, result, parameters)                                      \
  static_assert(offsetof(OrtApi, name) == (position) * sizeof(void*), "position of " #name); \
  static_assert(SameCall<decltype(Api::name), decltype(OrtApi::name)>::value,                \
                "signature of " #name);
NYSTRA_ORT_ENTRIES(CHECK_ENTRY)
NYSTRA_ORT_DEVICE_ENTRIES(CHECK_ENTRY)

#define CHECK_MEMBER(name) \
  static_assert(offsetof(CustomOp, name) == offsetof(OrtCustomOp, name), "place of " #name);
CHECK_MEMBER(version)
CHECK_MEMBER(CreateKernel)
CHECK_MEMBER(GetName)
CHECK_MEMBER(GetExecutionProviderType)
CHECK_MEMBER(GetInputType)
CHECK_MEMBER(GetInputTypeCount)
CHECK_MEMBER(GetOutputType)
CHECK_MEMBER(GetOutputTypeCount)
CHECK_MEMBER(KernelCompute)
CHECK_MEMBER(KernelDestroy)
CHECK_MEMBER(GetInputCharacteristic)
CHECK_MEMBER(GetOutputCharacteristic)
CHECK_MEMBER(GetInputMemoryType)
CHECK_MEMBER(GetVariadicInputMinArity)
CHECK_MEMBER(GetVariadicInputHomogeneity)
CHECK_MEMBER(GetVariadicOutputMinArity)
CHECK_MEMBER(GetVariadicOutputHomogeneity)
CHECK_MEMBER(CreateKernelV2)
CHECK_MEMBER(KernelComputeV2)
CHECK_MEMBER(InferOutputShapeFn)
CHECK_MEMBER(GetStartVersion)
CHECK_MEMBER(GetEndVersion)
CHECK_MEMBER(GetMayInplace)
CHECK_MEMBER(ReleaseMayInplace)
CHECK_MEMBER(GetAliasMap)
CHECK_MEMBER(ReleaseAliasMap)

static_assert(kFloat == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
static_assert(kInt32 == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
static_assert(kFloat16 == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
static_assert(kBfloat16 == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);
static_assert(kRequired == INPUT_OUTPUT_REQUIRED && kDefaultMemory == OrtMemTypeDefault);
static_assert(kFail == ORT_FAIL && kInvalidArgument == ORT_INVALID_ARGUMENT);
static_assert(offsetof(OrtApiBase, GetApi) == offsetof(ApiBase, GetApi));

}  // namespace
}  // namespace nystra::ort
