// The binding of the operators to TensorRT: what an operator declares, and its plugin. Only
// interfaces whose layout TensorRT 10.13 to 11 and TensorRT-RTX share are called, so that one
// library serves them all: never ILogger, ILoggerFinder or IPluginRegistry.
#pragma once

#include <NvInferRuntime.h>

#include <memory>
#include <string>

#include "attributes.h"
#include "operators/tensors.h"

namespace nystra::trt {

using nvinfer1::Dims;
using nvinfer1::DimsExprs;

// One run of a plugin on a stream.
struct Call {
  Type type;           // of every tensor of kind T
  const Dims* shapes;  // of the inputs
  const void* const* inputs;
  void* const* outputs;
  void* workspace;
  cudaStream_t stream;
};

// A message on why CUDA accepts no kernel of this library.
std::string launch_refusal();

// Throws Refusal if a kernel could not be launched.
void require_ok(Status status);

// Symbolic sizes, while a network is built.
class Sizes {
 public:
  explicit Sizes(nvinfer1::IExprBuilder& builder) : builder_(builder) {}

  const nvinfer1::IDimensionExpr* constant(int64_t value) const { return builder_.constant(value); }

 private:
  nvinfer1::IExprBuilder& builder_;
};

// The sizes of an input as far as they are known: -1 where they depend on the network's input.
Dims known(const DimsExprs& shape);

Shape to_shape(const Dims& dims);

// An operator with its attributes. Immutable; functions throw Refusal for unsupported input.
class Operator {
 public:
  virtual ~Operator() = default;

  // Checks the shapes of all inputs; a size that is not known yet is -1.
  virtual void check(const Dims* in) const = 0;

  virtual void output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const = 0;

  // Bytes of workspace for inputs of a type up to these shapes; a refusal where they are beyond its
  // limits.
  virtual size_t workspace(Type type, const Dims* in) const = 0;

  // Enqueues the work on the call's stream; never allocates or waits. Shapes were checked.
  virtual void run(const Call& call) const = 0;
};

// The properties of an operator without its attributes.
struct Description {
  explicit Description(const Schema& schema,
                       std::unique_ptr<const Operator> (*make)(const Attributes&))
      : name(schema.name),
        inputs(schema.inputs),
        outputs(schema.outputs),
        attributes(schema),
        make(make) {}

  const char* name;
  const char* inputs;
  const char* outputs;
  const Schema& attributes;
  std::unique_ptr<const Operator> (*make)(const Attributes&);
};

class Plugin : public nvinfer1::IPluginV3,
               public nvinfer1::IPluginV3OneCore,
               public nvinfer1::IPluginV3OneBuild,
               public nvinfer1::IPluginV3OneRuntime {
 public:
  // Throws Refusal if the operator refuses the attributes.
  Plugin(const Description& description, Attributes attributes);

  nvinfer1::IPluginCapability* getCapabilityInterface(
      nvinfer1::PluginCapabilityType type) noexcept override;
  nvinfer1::IPluginV3* clone() noexcept override;

  const char* getPluginName() const noexcept override { return description_.name; }
  const char* getPluginVersion() const noexcept override { return "1"; }
  const char* getPluginNamespace() const noexcept override { return ""; }

  int32_t getNbOutputs() const noexcept override;
  int32_t getOutputDataTypes(nvinfer1::DataType* out, int32_t outputs, const nvinfer1::DataType* in,
                             int32_t inputs) const noexcept override;
  int32_t getOutputShapes(const DimsExprs* in, int32_t inputs, const DimsExprs*, int32_t,
                          DimsExprs* out, int32_t outputs,
                          nvinfer1::IExprBuilder& builder) noexcept override;
  bool supportsFormatCombination(int32_t place, const nvinfer1::DynamicPluginTensorDesc* tensors,
                                 int32_t inputs, int32_t outputs) noexcept override;
  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out,
                          int32_t outputs) noexcept override;
  size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out,
                          int32_t outputs) const noexcept override;
  const char* getTimingCacheID() noexcept override { return text_.c_str(); }

  int32_t onShapeChange(const nvinfer1::PluginTensorDesc* in, int32_t inputs,
                        const nvinfer1::PluginTensorDesc* out, int32_t outputs) noexcept override;
  int32_t enqueue(const nvinfer1::PluginTensorDesc* in, const nvinfer1::PluginTensorDesc* out,
                  const void* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override;
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
    return clone();
  }
  const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override;

 private:
  void check_counts(int32_t inputs, int32_t outputs) const;

  const Description& description_;
  std::shared_ptr<const Attributes> attributes_;
  std::shared_ptr<const Operator> operator_;
  std::string text_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

class Creator : public nvinfer1::IPluginCreatorV3One {
 public:
  explicit Creator(const Description& description);

  const char* getPluginName() const noexcept override { return description_.name; }
  const char* getPluginVersion() const noexcept override { return "1"; }
  // With any other namespace the parser silently uses the function body.
  const char* getPluginNamespace() const noexcept override { return ""; }
  const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }
  nvinfer1::IPluginV3* createPlugin(const char* layer,
                                    const nvinfer1::PluginFieldCollection* fields,
                                    nvinfer1::TensorRTPhase phase) noexcept override;

 private:
  const Description& description_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

}  // namespace nystra::trt
