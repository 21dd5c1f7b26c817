// A plug-in of onnxruntime with two execution providers that take every Relu:
// RightExecutionProvider computes it, WrongExecutionProvider makes what is positive a hundredth
// larger.
//
// The few entries of onnxruntime's tables that it needs are named by their positions, which never
// change; API 23 (onnxruntime 1.23) has them all.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

using Status = void;

constexpr std::uint32_t kApi = 23;

// Positions in OrtApi.
constexpr int kCreateStatus = 0;
constexpr int kGetTensorMutableData = 51;
constexpr int kGetDimensionsCount = 61;
constexpr int kGetDimensions = 62;
constexpr int kGetTensorShapeElementCount = 64;
constexpr int kGetTensorTypeAndShape = 65;
constexpr int kKernelContextGetInput = 90;
constexpr int kKernelContextGetOutput = 91;
constexpr int kReleaseTensorTypeAndShapeInfo = 99;
constexpr int kHardwareDeviceType = 307;
constexpr int kGetEpApi = 317;
constexpr int kGraphGetNumNodes = 344;
constexpr int kGraphGetNodes = 345;
constexpr int kNodeGetOperatorType = 350;

// Positions in OrtEpApi.
constexpr int kCreateEpDevice = 0;
constexpr int kAddNodesToFuse = 2;

void* const* api = nullptr;
void* const* ep_api = nullptr;

template <typename Result, typename... Arguments>
Result call(void* const* table, int position, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(table[position])(arguments...);
}

struct ComputeInfo {
  std::uint32_t version = kApi;
  Status* (*create_state)(ComputeInfo*, void*, void**);
  Status* (*compute)(ComputeInfo*, void*, void*);
  void (*release_state)(ComputeInfo*, void*);
  float gain;
};

struct Provider;

// The members of OrtEp up to API 23, and room that stays null.
struct Ep {
  std::uint32_t version = kApi;
  const char* (*name)(const Ep*);
  Status* (*capability)(Ep*, const void*, void*);
  Status* (*compile)(Ep*, const void**, const void**, std::size_t, ComputeInfo**, void**);
  void (*release_infos)(Ep*, ComputeInfo**, std::size_t);
  void* others[32] = {};
  const Provider* provider = nullptr;
};

// The members of OrtEpFactory up to API 23, and room that stays null.
struct Factory {
  std::uint32_t version = kApi;
  const char* (*name)(const Factory*);
  const char* (*vendor)(const Factory*);
  Status* (*devices)(Factory*, const void* const*, std::size_t, void**, std::size_t, std::size_t*);
  Status* (*create)(Factory*, const void* const*, const void* const*, std::size_t, const void*,
                    const void*, Ep**);
  void (*release)(Factory*, Ep*);
  std::uint32_t (*vendor_id)(const Factory*);
  const char* (*plugin_version)(const Factory*);
  void* compatibility = nullptr;
  Status* (*create_allocator)(Factory*, const void*, const void*, void**);
  void (*release_allocator)(Factory*, void*);
  Status* (*create_transfer)(Factory*, void**);
  bool (*is_stream_aware)(const Factory*);
  void* others[32] = {};
};

struct Provider : Factory {
  const char* title;
  float gain;
};

Status* compute(ComputeInfo* info, void*, void* context) {
  const void* input = nullptr;
  void *shape = nullptr, *output = nullptr, *source = nullptr, *target = nullptr;
  std::size_t rank = 0, count = 0;
  call<Status*>(api, kKernelContextGetInput, context, std::size_t{0}, &input);
  call<Status*>(api, kGetTensorTypeAndShape, input, &shape);
  call<Status*>(api, kGetDimensionsCount, shape, &rank);
  std::vector<std::int64_t> sides(rank);
  call<Status*>(api, kGetDimensions, shape, sides.data(), rank);
  call<Status*>(api, kGetTensorShapeElementCount, shape, &count);
  call<void>(api, kReleaseTensorTypeAndShapeInfo, shape);
  if (Status* failed = call<Status*>(api, kKernelContextGetOutput, context, std::size_t{0},
                                     static_cast<const std::int64_t*>(sides.data()), rank, &output))
    return failed;
  call<Status*>(api, kGetTensorMutableData, const_cast<void*>(input), &source);
  call<Status*>(api, kGetTensorMutableData, output, &target);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<const float*>(source)[i];
    static_cast<float*>(target)[i] = value > 0 ? value * info->gain : 0;
  }
  return nullptr;
}

Status* capability(Ep*, const void* graph, void* support) {
  std::size_t count = 0;
  if (Status* failed = call<Status*>(api, kGraphGetNumNodes, graph, &count)) return failed;
  std::vector<const void*> nodes(count);
  if (Status* failed = call<Status*>(api, kGraphGetNodes, graph, nodes.data(), count))
    return failed;
  for (const void*& node : nodes) {
    const char* kind = nullptr;
    if (Status* failed = call<Status*>(api, kNodeGetOperatorType, node, &kind)) return failed;
    if (std::strcmp(kind, "Relu") != 0) continue;
    const void* options = nullptr;
    if (Status* failed =
            call<Status*>(ep_api, kAddNodesToFuse, support, static_cast<const void* const*>(&node),
                          std::size_t{1}, options))
      return failed;
  }
  return nullptr;
}

Status* compile(Ep* ep, const void**, const void**, std::size_t count, ComputeInfo** infos,
                void**) {
  for (std::size_t i = 0; i < count; ++i) {
    infos[i] = new ComputeInfo;
    infos[i]->create_state = [](ComputeInfo*, void*, void** state) -> Status* {
      *state = nullptr;
      return nullptr;
    };
    infos[i]->compute = compute;
    infos[i]->release_state = [](ComputeInfo*, void*) {};
    infos[i]->gain = ep->provider->gain;
  }
  return nullptr;
}

Status* create(Factory* factory, const void* const*, const void* const*, std::size_t, const void*,
               const void*, Ep** made) {
  *made = new Ep;
  (*made)->provider = static_cast<const Provider*>(factory);
  (*made)->name = [](const Ep* ep) { return ep->provider->title; };
  (*made)->capability = capability;
  (*made)->compile = compile;
  (*made)->release_infos = [](Ep*, ComputeInfo** infos, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) delete infos[i];
  };
  return nullptr;
}

Status* devices(Factory* factory, const void* const* found, std::size_t count, void** taken,
                std::size_t, std::size_t* number) {
  *number = 0;
  for (std::size_t i = 0; i < count && *number == 0; ++i) {
    if (call<int>(api, kHardwareDeviceType, found[i]) != 0) continue;  // a CPU
    const void* none = nullptr;
    if (Status* failed =
            call<Status*>(ep_api, kCreateEpDevice, factory, found[i], none, none, &taken[0]))
      return failed;
    *number = 1;
  }
  return nullptr;
}

Provider* provider(const char* title, float gain) {
  auto* made = new Provider;
  made->title = title;
  made->gain = gain;
  made->name = [](const Factory* factory) { return static_cast<const Provider*>(factory)->title; };
  made->vendor = [](const Factory*) { return "a test"; };
  made->devices = devices;
  made->create = create;
  made->release = [](Factory*, Ep* ep) { delete ep; };
  made->vendor_id = [](const Factory*) { return std::uint32_t{0}; };
  made->plugin_version = [](const Factory*) { return "1.0.0"; };
  made->create_allocator = [](Factory*, const void*, const void*, void** allocator) -> Status* {
    *allocator = nullptr;
    return nullptr;
  };
  made->release_allocator = [](Factory*, void*) {};
  made->create_transfer = [](Factory*, void** transfer) -> Status* {
    *transfer = nullptr;
    return nullptr;
  };
  made->is_stream_aware = [](const Factory*) { return false; };
  return made;
}

}  // namespace

extern "C" Status* CreateEpFactories(const char*, void* const* base, const void*,
                                     Factory** factories, std::size_t, std::size_t* count) {
  api = call<void* const*>(base, 0, kApi);
  if (api == nullptr) {
    void* const* oldest = call<void* const*>(base, 0, std::uint32_t{1});
    const char* text = "onnxruntime 1.23 or later is needed";
    return call<Status*>(oldest, kCreateStatus, 1, text);
  }
  ep_api = reinterpret_cast<void* const* (*)()>(api[kGetEpApi])();
  factories[0] = provider("RightExecutionProvider", 1.0F);
  factories[1] = provider("WrongExecutionProvider", 1.01F);
  *count = 2;
  return nullptr;
}

extern "C" Status* ReleaseEpFactory(Factory* factory) {
  delete static_cast<Provider*>(factory);
  return nullptr;
}
