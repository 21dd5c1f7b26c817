// The same plugins with one fault planted, to show that the checks can fail: the environment
// variable NYSTRA_FAULT names it. Test code; never installed.
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tensorrt/operators.h"

namespace nystra::trt {
namespace {

bool fault(const char* name) {
  const char* const planted = std::getenv("NYSTRA_FAULT");
  return planted != nullptr && std::strcmp(planted, name) == 0;
}

class FaultyPlugin final : public Plugin {
 public:
  using Plugin::Plugin;
  explicit FaultyPlugin(const Plugin& sound) : Plugin(sound) {}

  nvinfer1::IPluginCapability* getCapabilityInterface(
      nvinfer1::PluginCapabilityType type) noexcept override {
    if (fault("capability") && type == nvinfer1::PluginCapabilityType::kBUILD) return nullptr;
    return Plugin::getCapabilityInterface(type);
  }

  nvinfer1::IPluginV3* clone() noexcept override {
    if (fault("clone")) return nullptr;
    return new FaultyPlugin(*this);
  }

  int32_t getNbOutputs() const noexcept override {
    return Plugin::getNbOutputs() + (fault("outputs") ? 1 : 0);
  }

  int32_t getOutputDataTypes(nvinfer1::DataType* out, int32_t outputs, const nvinfer1::DataType* in,
                             int32_t inputs) const noexcept override {
    const int32_t status = Plugin::getOutputDataTypes(out, outputs, in, inputs);
    if (fault("type")) out[0] = nvinfer1::DataType::kINT32;
    return status;
  }

  int32_t getOutputShapes(const DimsExprs* in, int32_t inputs, const DimsExprs* shape_inputs,
                          int32_t shapes, DimsExprs* out, int32_t outputs,
                          nvinfer1::IExprBuilder& builder) noexcept override {
    if (fault("shape_error")) return -1;
    const int32_t status =
        Plugin::getOutputShapes(in, inputs, shape_inputs, shapes, out, outputs, builder);
    if (fault("shape"))
      out[0].d[1] =
          builder.operation(nvinfer1::DimensionOperation::kSUM, *out[0].d[1], *builder.constant(1));
    return status;
  }

  bool supportsFormatCombination(int32_t place, const nvinfer1::DynamicPluginTensorDesc* tensors,
                                 int32_t inputs, int32_t outputs) noexcept override {
    if (fault("format")) return false;
    return Plugin::supportsFormatCombination(place, tensors, inputs, outputs);
  }

  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out,
                          int32_t outputs) noexcept override {
    if (fault("configure")) return -1;
    return Plugin::configurePlugin(in, inputs, out, outputs);
  }

  const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override {
    const nvinfer1::PluginFieldCollection* const all = Plugin::getFieldsToSerialize();
    if (!fault("serialize")) return all;
    fewer_ = {all->nbFields - 1, all->fields};
    return &fewer_;
  }

  const char* getTimingCacheID() noexcept override {
    return fault("timing") ? "" : Plugin::getTimingCacheID();
  }

  int32_t enqueue(const nvinfer1::PluginTensorDesc* in, const nvinfer1::PluginTensorDesc* out,
                  const void* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override {
    if (fault("enqueue")) return 0;
    return Plugin::enqueue(in, out, inputs, outputs, workspace, stream);
  }

 private:
  nvinfer1::PluginFieldCollection fewer_{};
};

class FaultyCreator final : public Creator {
 public:
  explicit FaultyCreator(const Description& description)
      : Creator(description), description_(description) {}

  const char* getPluginName() const noexcept override {
    return fault("name") ? "NystraOther" : Creator::getPluginName();
  }
  const char* getPluginNamespace() const noexcept override {
    return fault("namespace") ? "nystra" : "";
  }

  nvinfer1::IPluginV3* createPlugin(const char* layer,
                                    const nvinfer1::PluginFieldCollection* fields,
                                    nvinfer1::TensorRTPhase phase) noexcept override {
    if (fault("null")) return nullptr;
    const std::unique_ptr<nvinfer1::IPluginV3> sound(Creator::createPlugin(layer, fields, phase));
    if (sound == nullptr && fault("field"))
      return new FaultyPlugin(description_, last_good_.value());
    if (sound == nullptr) return nullptr;
    last_good_.emplace(description_.attributes, fields);
    return new FaultyPlugin(static_cast<const Plugin&>(*sound));
  }

 private:
  const Description& description_;
  std::optional<Attributes> last_good_;
};

}  // namespace
}  // namespace nystra::trt

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const*
getCreators(int32_t& count) {
  return nystra::trt::creators_of<nystra::trt::FaultyCreator>(count);
}

extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder*) {}
