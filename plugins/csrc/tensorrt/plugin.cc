#include "plugin.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <exception>

namespace nystra::trt {
namespace {

using nvinfer1::DataType;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginTensorDesc;

// The result of `work`; if it throws, `failed`, with the message on stderr.
template <class Result, class Work>
Result guarded(const char* plugin, const char* layer, Result failed, const Work& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    print_error(plugin, layer, error.what());
  } catch (...) {
    print_error(plugin, layer, "an unknown error");
  }
  return failed;
}

int32_t count(const char* kinds) { return static_cast<int32_t>(std::strlen(kinds)); }

bool is_element(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

Type element(DataType type) {
  return type == DataType::kFLOAT  ? Type::kFloat
         : type == DataType::kHALF ? Type::kHalf
                                   : Type::kBfloat16;
}

std::vector<Dims> shapes(const PluginTensorDesc* tensors, int32_t n) {
  std::vector<Dims> result;
  for (int32_t i = 0; i < n; ++i) result.push_back(tensors[i].dims);
  return result;
}

std::vector<Dims> shapes(const DynamicPluginTensorDesc* tensors, int32_t n,
                         Dims DynamicPluginTensorDesc::* which) {
  std::vector<Dims> result;
  for (int32_t i = 0; i < n; ++i) result.push_back(tensors[i].*which);
  return result;
}

}  // namespace

std::string launch_refusal() {
  constexpr int kMajor = CUDART_VERSION / 1000;
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "there is no NVIDIA driver";
  if (driver / 1000 < kMajor)
    return "the driver supports CUDA " + std::to_string(driver / 1000) + "." +
           std::to_string(driver % 1000 / 10) + "; this library needs CUDA " +
           std::to_string(kMajor) + " or newer";
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return "there is no device";
  return "the library has no code for this device's architecture, or the device failed before";
}

void require_ok(Status status) {
  switch (status) {
    case Status::kOk: return;
    case Status::kNoScratch: throw Refusal("the call needs a workspace and got none");
    case Status::kUnsupported: throw Refusal("sizes that the kernel does not support");
    case Status::kLaunch: throw Refusal("CUDA refused to launch the kernel: " + launch_refusal());
  }
}

Dims known(const DimsExprs& shape) {
  Dims result{};
  result.nbDims = shape.nbDims;
  for (int32_t i = 0; i < shape.nbDims; ++i)
    result.d[i] = shape.d[i]->isConstant() ? shape.d[i]->getConstantValue() : -1;
  return result;
}

Shape to_shape(const Dims& dims) {
  Shape result;
  for (result.rank = 0; result.rank < dims.nbDims; ++result.rank)
    result[result.rank] = dims.d[result.rank];
  return result;
}

Plugin::Plugin(const Description& description, Attributes attributes)
    : description_(description),
      attributes_(std::make_shared<const Attributes>(std::move(attributes))),
      operator_(description.make(*attributes_)),
      text_(attributes_->text()) {}

nvinfer1::IPluginCapability* Plugin::getCapabilityInterface(
    nvinfer1::PluginCapabilityType type) noexcept {
  switch (type) {
    case nvinfer1::PluginCapabilityType::kCORE:
      return static_cast<nvinfer1::IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD:
      return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME:
      return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
  }
  return nullptr;
}

nvinfer1::IPluginV3* Plugin::clone() noexcept {
  return guarded<nvinfer1::IPluginV3*>(description_.name, "", nullptr,
                                       [&] { return new Plugin(description_, *attributes_); });
}

void Plugin::check_counts(int32_t inputs, int32_t outputs) const {
  const int32_t in = count(description_.inputs), out = count(description_.outputs);
  if (inputs != in || outputs != out)
    throw Refusal(std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
                  " outputs; expected " + std::to_string(in) + " and " + std::to_string(out));
}

int32_t Plugin::getNbOutputs() const noexcept { return count(description_.outputs); }

int32_t Plugin::getOutputDataTypes(DataType* out, int32_t outputs, const DataType* in,
                                   int32_t inputs) const noexcept {
  return guarded<int32_t>(description_.name, "", -1, [&] {
    check_counts(inputs, outputs);
    for (int32_t i = 0; i < inputs; ++i) {
      const bool index = description_.inputs[i] == 'I';
      if (index ? in[i] != DataType::kINT32 : !is_element(in[i]) || in[i] != in[0])
        throw Refusal("input " + std::to_string(i) + " is of type number " +
                      std::to_string(int(in[i])) + "; expected " +
                      (index ? "int32" : "float, half or bfloat16, as input 0"));
    }
    for (int32_t i = 0; i < outputs; ++i)
      out[i] = description_.outputs[i] == 'I' ? DataType::kINT32 : in[0];
    return 0;
  });
}

int32_t Plugin::getOutputShapes(const DimsExprs* in, int32_t inputs, const DimsExprs*, int32_t,
                                DimsExprs* out, int32_t outputs,
                                nvinfer1::IExprBuilder& builder) noexcept {
  return guarded<int32_t>(description_.name, "", -1, [&] {
    check_counts(inputs, outputs);
    std::vector<Dims> dims;
    for (int32_t i = 0; i < inputs; ++i) dims.push_back(known(in[i]));
    operator_->check(dims.data());
    operator_->output_shapes(in, Sizes(builder), out);
    return 0;
  });
}

bool Plugin::supportsFormatCombination(int32_t place, const DynamicPluginTensorDesc* tensors,
                                       int32_t inputs, int32_t outputs) noexcept {
  if (inputs != count(description_.inputs) || outputs != count(description_.outputs)) return false;
  if (place < 0 || place >= inputs + outputs) return false;
  const PluginTensorDesc& tensor = tensors[place].desc;
  if (tensor.format != nvinfer1::TensorFormat::kLINEAR) return false;
  const char kind =
      place < inputs ? description_.inputs[place] : description_.outputs[place - inputs];
  if (kind == 'I') return tensor.type == DataType::kINT32;
  return is_element(tensor.type) && tensor.type == tensors[0].desc.type;
}

int32_t Plugin::configurePlugin(const DynamicPluginTensorDesc* in, int32_t inputs,
                                const DynamicPluginTensorDesc*, int32_t outputs) noexcept {
  return guarded<int32_t>(description_.name, "", -1, [&] {
    check_counts(inputs, outputs);
    operator_->check(shapes(in, inputs, &DynamicPluginTensorDesc::opt).data());
    // TensorRT's largest shapes are bounds, maybe no multiples of a window: only limits count.
    operator_->workspace(element(in[0].desc.type),
                         shapes(in, inputs, &DynamicPluginTensorDesc::max).data());
    return 0;
  });
}

size_t Plugin::getWorkspaceSize(const DynamicPluginTensorDesc* in, int32_t inputs,
                                const DynamicPluginTensorDesc*, int32_t) const noexcept {
  return guarded<size_t>(description_.name, "", 0, [&] {
    return operator_->workspace(element(in[0].desc.type),
                                shapes(in, inputs, &DynamicPluginTensorDesc::max).data());
  });
}

int32_t Plugin::onShapeChange(const PluginTensorDesc* in, int32_t inputs, const PluginTensorDesc*,
                              int32_t outputs) noexcept {
  return guarded<int32_t>(description_.name, "", -1, [&] {
    check_counts(inputs, outputs);
    operator_->check(shapes(in, inputs).data());
    return 0;
  });
}

int32_t Plugin::enqueue(const PluginTensorDesc* in, const PluginTensorDesc*,
                        const void* const* inputs, void* const* outputs, void* workspace,
                        cudaStream_t stream) noexcept {
  return guarded<int32_t>(description_.name, "", -1, [&] {
    const std::vector<Dims> dims = shapes(in, count(description_.inputs));
    operator_->check(dims.data());
    operator_->run(Call{element(in[0].type), dims.data(), inputs, outputs, workspace, stream});
    return 0;
  });
}

const nvinfer1::PluginFieldCollection* Plugin::getFieldsToSerialize() noexcept {
  return guarded<const nvinfer1::PluginFieldCollection*>(description_.name, "", nullptr, [&] {
    fields_ = attributes_->fields();
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
    return &collection_;
  });
}

Creator::Creator(const Description& description) : description_(description) {
  for (const Attribute& one : description.attributes)
    fields_.emplace_back(
        one.name, nullptr,
        one.integer ? nvinfer1::PluginFieldType::kINT32 : nvinfer1::PluginFieldType::kFLOAT32, 1);
  collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
}

nvinfer1::IPluginV3* Creator::createPlugin(const char* layer,
                                           const nvinfer1::PluginFieldCollection* fields,
                                           nvinfer1::TensorRTPhase) noexcept {
  return guarded<nvinfer1::IPluginV3*>(description_.name, layer, nullptr, [&] {
    return new Plugin(description_, Attributes(description_.attributes, fields));
  });
}

}  // namespace nystra::trt
