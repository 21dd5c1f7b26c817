// A library that is loaded by its path, on either kind of system.
#pragma once

#include <stdexcept>
#include <string>

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

class DynamicLibrary {
 public:
  explicit DynamicLibrary(const std::string& path) {
#if defined(_WIN32)
    handle_ = LoadLibraryA(path.c_str());
    if (!handle_)
      throw std::runtime_error("cannot load " + path + ": error " + std::to_string(GetLastError()));
#else
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw std::runtime_error(dlerror());
#endif
  }

  template <typename Function>
  Function* function(const char* name) const {
#if defined(_WIN32)
    void* const found = reinterpret_cast<void*>(GetProcAddress(handle_, name));
#else
    void* const found = dlsym(handle_, name);
#endif
    if (!found) throw std::runtime_error(std::string("no function ") + name);
    return reinterpret_cast<Function*>(found);
  }

 private:
#if defined(_WIN32)
  HMODULE handle_;
#else
  void* handle_;
#endif
};
