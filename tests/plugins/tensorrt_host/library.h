// A plugin library as TensorRT's registry takes it, and the fields of its plugins.
#pragma once

#include <NvInferRuntime.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace nystra::host {

using nvinfer1::IPluginV3;

// One attribute: kINT32, kFLOAT32, or text (kCHAR, its trailing zero counted).
using FieldValue = std::variant<int32_t, float, std::string>;
using Fields = std::map<std::string, FieldValue>;

// Fields as TensorRT passes them; points into `fields`, which must outlive it.
class FieldCollection {
 public:
  explicit FieldCollection(const Fields& fields);
  const nvinfer1::PluginFieldCollection* get() const { return &collection_; }

 private:
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

// What a collection holds. Throws where a field has another type than those above.
Fields read_fields(const nvinfer1::PluginFieldCollection& collection);

// An opened library. Throws std::runtime_error where it is none.
class Library {
 public:
  explicit Library(const std::string& path);

  const std::vector<nvinfer1::IPluginCreatorV3One*>& creators() const { return creators_; }
  // Null where there is none of that name.
  nvinfer1::IPluginCreatorV3One* creator(const std::string& name) const;

 private:
  std::vector<nvinfer1::IPluginCreatorV3One*> creators_;
};

// Plugins are destroyed as TensorRT does it.
using PluginPointer = std::unique_ptr<IPluginV3>;

inline PluginPointer create(nvinfer1::IPluginCreatorV3One& creator, const Fields& fields,
                            nvinfer1::TensorRTPhase phase = nvinfer1::TensorRTPhase::kBUILD) {
  return PluginPointer(creator.createPlugin("layer", FieldCollection(fields).get(), phase));
}

// The three faces of a plugin; null where it has none.
nvinfer1::IPluginV3OneCore* core(IPluginV3& plugin);
nvinfer1::IPluginV3OneBuild* build(IPluginV3& plugin);
nvinfer1::IPluginV3OneRuntime* runtime(IPluginV3& plugin);

// What `work` prints to stderr.
std::string words(const std::function<void()>& work);

}  // namespace nystra::host
