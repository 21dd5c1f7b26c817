// Registers the plugins of libnystra_trt.so when it is loaded, for programs that only dlopen:
// onnxruntime's trt_extra_plugin_lib_paths, polygraphy --plugins, Triton, LD_PRELOAD. Programs that
// know IPluginRegistry::loadLibrary take libnystra_trt.so itself: a creator registers once.
//
// Built once for each major version, since IPluginRegistry lost its old entries in TensorRT 11.
// Neither library is needed to build it: getPluginRegistry is looked up when it is loaded.
#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <cstdio>

extern "C" nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count);

namespace nystra::trt {

// The head of IPluginRegistry's function table, entry for entry. Not in an anonymous namespace:
// there the compiler knows that nothing derives from it, and calls the pure functions.
class __attribute__((visibility("default"))) Registry {
 public:
#if NYSTRA_TENSORRT_MAJOR == 10
  virtual bool register_creator_v2(void*, const char*) noexcept = 0;
  virtual void* const* creator_list_v2(int32_t*) const noexcept = 0;
  virtual void* creator_v2(const char*, const char*, const char*) noexcept = 0;
#endif
 protected:
  virtual ~Registry() noexcept = default;

 public:
  virtual void set_error_recorder(void*) noexcept = 0;
  virtual void* error_recorder() const noexcept = 0;
#if NYSTRA_TENSORRT_MAJOR == 10
  virtual bool deregister_creator_v2(const void*) noexcept = 0;
#endif
  virtual bool parent_search_enabled() const = 0;
  virtual void set_parent_search_enabled(bool) = 0;
  virtual void* load_library(const char*) noexcept = 0;
  virtual void deregister_library(void*) noexcept = 0;
  virtual bool register_creator(nvinfer1::IPluginCreatorInterface&,
                                const char* name_space) noexcept = 0;
};

namespace {

#define NYSTRA_TEXT(x) #x
#define NYSTRA_LIBRARY(major) "libnvinfer.so." NYSTRA_TEXT(major)
constexpr const char* kLibrary = NYSTRA_LIBRARY(NYSTRA_TENSORRT_MAJOR);

__attribute__((constructor)) void register_plugins() {
  void* const library = dlopen(kLibrary, RTLD_LAZY);
  using Find = Registry* (*)();
  const auto find =
      library == nullptr ? nullptr : reinterpret_cast<Find>(dlsym(library, "getPluginRegistry"));
  Registry* const registry = find == nullptr ? nullptr : find();
  if (registry == nullptr) {
    std::fprintf(stderr, "nystra: its plugins are not registered: %s has no plugin registry: %s\n",
                 kLibrary, library == nullptr ? dlerror() : "it is not TensorRT");
    return;
  }
  int32_t count = 0;
  nvinfer1::IPluginCreatorInterface* const* const creators = getCreators(count);
  for (int32_t i = 0; i < count; ++i) {
    if (!registry->register_creator(*creators[i], ""))
      std::fprintf(stderr,
                   "nystra: %s refused to register a plugin; was libnystra_trt.so loaded before?\n",
                   kLibrary);
  }
}

}  // namespace
}  // namespace nystra::trt
