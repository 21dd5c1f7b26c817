#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace nystra::host {

using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

FieldCollection::FieldCollection(const Fields& fields) {
  for (const auto& [name, value] : fields) {
    if (const int32_t* const number = std::get_if<int32_t>(&value)) {
      fields_.emplace_back(name.c_str(), number, PluginFieldType::kINT32, 1);
    } else if (const float* const real = std::get_if<float>(&value)) {
      fields_.emplace_back(name.c_str(), real, PluginFieldType::kFLOAT32, 1);
    } else {
      const std::string& text = std::get<std::string>(value);
      fields_.emplace_back(name.c_str(), text.c_str(), PluginFieldType::kCHAR,
                           int32_t(text.size() + 1));
    }
  }
  collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
}

Fields read_fields(const nvinfer1::PluginFieldCollection& collection) {
  Fields result;
  for (int32_t i = 0; i < collection.nbFields; ++i) {
    const PluginField& field = collection.fields[i];
    if (field.type == PluginFieldType::kINT32 && field.length == 1) {
      result[field.name] = *static_cast<const int32_t*>(field.data);
    } else if (field.type == PluginFieldType::kFLOAT32 && field.length == 1) {
      result[field.name] = *static_cast<const float*>(field.data);
    } else {
      throw std::runtime_error(std::string("field ") + field.name +
                               " is neither kINT32 nor kFLOAT32");
    }
  }
  return result;
}

Library::Library(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw std::runtime_error(std::string("cannot open the library: ") + dlerror());
  using GetCreators = nvinfer1::IPluginCreatorInterface* const* (*)(int32_t&);
  using SetLoggerFinder = void (*)(nvinfer1::ILoggerFinder*);
  const auto get = reinterpret_cast<GetCreators>(dlsym(library, "getCreators"));
  const auto set = reinterpret_cast<SetLoggerFinder>(dlsym(library, "setLoggerFinder"));
  if (get == nullptr || set == nullptr)
    throw std::runtime_error("the library lacks getCreators or setLoggerFinder");
  set(nullptr);
  int32_t count = 0;
  nvinfer1::IPluginCreatorInterface* const* const offered = get(count);
  for (int32_t i = 0; i < count; ++i) {
    if (std::strcmp(offered[i]->getInterfaceInfo().kind, "PLUGIN CREATOR_V3ONE") != 0)
      throw std::runtime_error("a creator is no IPluginCreatorV3One");
    creators_.push_back(static_cast<nvinfer1::IPluginCreatorV3One*>(offered[i]));
  }
}

nvinfer1::IPluginCreatorV3One* Library::creator(const std::string& name) const {
  for (nvinfer1::IPluginCreatorV3One* const each : creators_)
    if (name == each->getPluginName()) return each;
  return nullptr;
}

nvinfer1::IPluginV3OneCore* core(IPluginV3& plugin) {
  return static_cast<nvinfer1::IPluginV3OneCore*>(
      plugin.getCapabilityInterface(PluginCapabilityType::kCORE));
}

nvinfer1::IPluginV3OneBuild* build(IPluginV3& plugin) {
  return static_cast<nvinfer1::IPluginV3OneBuild*>(
      plugin.getCapabilityInterface(PluginCapabilityType::kBUILD));
}

nvinfer1::IPluginV3OneRuntime* runtime(IPluginV3& plugin) {
  return static_cast<nvinfer1::IPluginV3OneRuntime*>(
      plugin.getCapabilityInterface(PluginCapabilityType::kRUNTIME));
}

std::string words(const std::function<void()>& work) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr) throw std::runtime_error("cannot make a temporary file");
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  work();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  std::fclose(file);
  return text;
}

}  // namespace nystra::host
