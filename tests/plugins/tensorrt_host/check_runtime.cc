#include <algorithm>

#include "checks.h"
#include "doubles.h"

namespace nystra::host {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginTensorDesc;

PluginTensorDesc described(const Shape& shape, char kind) {
  PluginTensorDesc result{};
  result.dims.nbDims = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), result.dims.d);
  result.type = kind == 'I' ? DataType::kINT32 : DataType::kFLOAT;
  result.format = nvinfer1::TensorFormat::kLINEAR;
  return result;
}

std::vector<PluginTensorDesc> described(const std::vector<Shape>& shapes,
                                        const std::string& kinds) {
  std::vector<PluginTensorDesc> result;
  for (size_t i = 0; i < shapes.size(); ++i) result.push_back(described(shapes[i], kinds[i]));
  return result;
}

// Calls enqueue on a little host memory: nothing may be read or written where the call is refused
// or there is no device.
int32_t enqueue(nvinfer1::IPluginV3OneRuntime& plugin, const Example& e,
                const std::vector<Shape>& in_shapes, const std::vector<Shape>& out_shapes) {
  const std::vector<PluginTensorDesc> in = described(in_shapes, e.inputs),
                                      out = described(out_shapes, e.outputs);
  std::vector<std::vector<float>> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < in_shapes.size(); ++i)
    inputs.push_back(memory.emplace_back(1 << 12).data());
  for (size_t i = 0; i < out_shapes.size(); ++i)
    outputs.push_back(memory.emplace_back(1 << 12).data());
  std::vector<float> workspace(1 << 20);
  return plugin.enqueue(in.data(), out.data(), inputs.data(), outputs.data(), workspace.data(),
                        nullptr);
}

}  // namespace

void check_runtime(nvinfer1::IPluginCreatorV3One& creator, const Example& e, bool device,
                   Report& report) {
  const PluginPointer plugin = create(creator, e.fields, nvinfer1::TensorRTPhase::kRUNTIME);
  if (plugin == nullptr || runtime(*plugin) == nullptr) return;  // reported by the other checks
  nvinfer1::IPluginV3OneRuntime& run = *runtime(*plugin);
  const std::vector<PluginTensorDesc> out = described(e.output_shapes, e.outputs);
  const std::vector<PluginTensorDesc> in = described(e.shapes, e.inputs);
  report.check(
      run.onShapeChange(in.data(), int32_t(in.size()), out.data(), int32_t(out.size())) == 0,
      e.name + ": onShapeChange takes a good shape");
  for (const BadShapes& row : bad_shapes()) {
    if (row.name != e.name) continue;
    const std::vector<PluginTensorDesc> bad = described(row.shapes, e.inputs);
    bool refused = false;
    std::string printed = words([&] {
      refused =
          run.onShapeChange(bad.data(), int32_t(bad.size()), out.data(), int32_t(out.size())) != 0;
    });
    report.check(refused && printed.find(row.expected) != std::string::npos,
                 e.name + ": onShapeChange says \"" + row.expected + "\"; it printed: " + printed);
    printed = words([&] { refused = enqueue(run, e, row.shapes, e.output_shapes) != 0; });
    report.check(refused && printed.find(row.expected) != std::string::npos,
                 e.name + ": enqueue says \"" + row.expected + "\"; it printed: " + printed);
  }
  if (device) return;  // host memory is no argument then; --enqueue is the check
  bool refused = false;
  const std::string printed =
      words([&] { refused = enqueue(run, e, e.shapes, e.output_shapes) != 0; });
  report.check(refused && printed.find("CUDA refused to launch the kernel") != std::string::npos,
               e.name + ": without a device enqueue fails and says so; it printed: " + printed);
}

void check_lives(nvinfer1::IPluginCreatorV3One& creator, const Example& e, Report& report) {
  PluginPointer plugin = create(creator, e.fields);
  if (plugin == nullptr || build(*plugin) == nullptr || runtime(*plugin) == nullptr) return;
  const nvinfer1::PluginFieldCollection* const stored = runtime(*plugin)->getFieldsToSerialize();
  report.check(stored != nullptr && read_fields(*stored) == e.fields,
               e.name + ": serializes all its fields");
  if (stored == nullptr) return;
  const std::string id = build(*plugin)->getTimingCacheID();

  // What is deserialized serializes to the same.
  const PluginPointer again =
      create(creator, read_fields(*stored), nvinfer1::TensorRTPhase::kRUNTIME);
  const auto* const twice = again == nullptr ? nullptr : runtime(*again)->getFieldsToSerialize();
  report.check(twice != nullptr && read_fields(*twice) == e.fields,
               e.name + ": comes back from its fields");

  // A clone and an attached plugin outlive the original.
  const PluginPointer clone(plugin->clone()), attached(runtime(*plugin)->attachToContext(nullptr));
  plugin.reset();
  for (IPluginV3* const copy : {clone.get(), attached.get()}) {
    const bool whole = copy != nullptr && build(*copy) != nullptr && runtime(*copy) != nullptr;
    report.check(whole, e.name + ": a clone has all capabilities");
    if (!whole) continue;
    const auto* const fields = runtime(*copy)->getFieldsToSerialize();
    report.check(fields != nullptr && read_fields(*fields) == e.fields,
                 e.name + ": a clone keeps its fields");
    report.check(build(*copy)->getTimingCacheID() == id,
                 e.name + ": a clone keeps its timing-cache id");
    SizeBuilder builder;
    std::vector<nvinfer1::DimsExprs> in, out(e.outputs.size());
    for (const Shape& shape : e.shapes) in.push_back(builder.shape(shape));
    report.check(build(*copy)->getOutputShapes(in.data(), int32_t(in.size()), nullptr, 0,
                                               out.data(), int32_t(out.size()), builder) == 0,
                 e.name + ": a clone still gives shapes");
  }

  // Another attribute, another id.
  Fields other = e.fields;
  const std::string changed = other.count("iterations") ? "iterations" : "bias";
  other[changed] =
      std::get<int32_t>(other[changed]) == 0 ? 1 : std::get<int32_t>(other[changed]) - 1;
  const PluginPointer different = create(creator, other);
  report.check(different != nullptr && build(*different)->getTimingCacheID() != id,
               e.name + ": another " + changed + " gives another timing-cache id");
}

}  // namespace nystra::host
