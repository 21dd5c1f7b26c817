#include <algorithm>

#include "checks.h"
#include "doubles.h"

namespace nystra::host {
namespace {

using nvinfer1::DataType;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::TensorFormat;

const std::vector<DataType> kElements = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16};
const std::vector<DataType> kTypes = {DataType::kFLOAT, DataType::kHALF,  DataType::kBF16,
                                      DataType::kINT8,  DataType::kINT32, DataType::kINT64,
                                      DataType::kUINT8, DataType::kBOOL,  DataType::kFP8};
const std::vector<TensorFormat> kFormats = {TensorFormat::kLINEAR, TensorFormat::kCHW2,
                                            TensorFormat::kHWC8,   TensorFormat::kCHW4,
                                            TensorFormat::kCHW32,  TensorFormat::kHWC};

DataType type_of(char kind, DataType element) { return kind == 'I' ? DataType::kINT32 : element; }

nvinfer1::Dims dims(const Shape& shape) {
  nvinfer1::Dims result{};
  result.nbDims = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), result.d);
  return result;
}

DynamicPluginTensorDesc described(const Shape& shape, DataType type) {
  const nvinfer1::Dims d = dims(shape);
  return {{d, type, TensorFormat::kLINEAR, 1.0f}, d, d, d};
}

std::vector<DynamicPluginTensorDesc> described(const std::vector<Shape>& shapes,
                                               const std::string& kinds) {
  std::vector<DynamicPluginTensorDesc> result;
  for (size_t i = 0; i < shapes.size(); ++i)
    result.push_back(described(shapes[i], type_of(kinds[i], DataType::kFLOAT)));
  return result;
}

void check_types(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  const int32_t inputs = int32_t(e.inputs.size()), outputs = int32_t(e.outputs.size());
  report.check(plugin.getNbOutputs() == outputs, e.name + ": the number of outputs");
  for (const DataType element : kElements) {
    std::vector<DataType> in, out(e.outputs.size(), DataType::kBOOL);
    for (const char kind : e.inputs) in.push_back(type_of(kind, element));
    bool right = plugin.getOutputDataTypes(out.data(), outputs, in.data(), inputs) == 0;
    for (int32_t i = 0; i < outputs; ++i) right = right && out[i] == type_of(e.outputs[i], element);
    report.check(right, e.name + ": output types follow the input's");
    for (int32_t i = 0; i < inputs; ++i) {
      std::vector<DataType> wrong = in;
      wrong[i] = DataType::kINT8;
      bool refused = false;
      words([&] {
        refused = plugin.getOutputDataTypes(out.data(), outputs, wrong.data(), inputs) != 0;
      });
      report.check(refused, e.name + ": an int8 input is refused");
    }
  }
}

// Place by place, as TensorRT asks: what stands before was accepted.
void check_formats(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  const std::string kinds = e.inputs + e.outputs;
  const int32_t inputs = int32_t(e.inputs.size()), outputs = int32_t(e.outputs.size());
  for (const DataType element : kElements) {
    std::vector<DynamicPluginTensorDesc> tensors;
    for (const char kind : kinds) tensors.push_back(described({1, 1}, type_of(kind, element)));
    for (size_t place = 0; place < kinds.size(); ++place) {
      for (const DataType type : kTypes) {
        for (const TensorFormat format : kFormats) {
          std::vector<DynamicPluginTensorDesc> changed = tensors;
          changed[place].desc.type = type;
          changed[place].desc.format = format;
          const bool any = place == 0 && kinds[0] == 'T';
          const bool fits = any ? std::count(kElements.begin(), kElements.end(), type) > 0
                                : type == type_of(kinds[place], element);
          const bool expected = fits && format == TensorFormat::kLINEAR;
          report.check(plugin.supportsFormatCombination(int32_t(place), changed.data(), inputs,
                                                        outputs) == expected,
                       e.name + ": format " + std::to_string(int(format)) + " of type " +
                           std::to_string(int(type)) + " at place " + std::to_string(place));
        }
      }
    }
  }
}

bool same(const nvinfer1::DimsExprs& got, const Shape& expected) {
  if (got.nbDims != int32_t(expected.size())) return false;
  for (int32_t i = 0; i < got.nbDims; ++i) {
    const int64_t size = got.d[i]->isConstant() ? got.d[i]->getConstantValue() : -1;
    if (size != expected[i]) return false;
  }
  return true;
}

// Output shapes of known sizes, and of a network whose sizes are open.
void check_shapes(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  for (const bool open : {false, true}) {
    SizeBuilder builder;
    std::vector<nvinfer1::DimsExprs> in, out(e.outputs.size());
    for (size_t i = 0; i < e.shapes.size(); ++i) {
      Shape shape = e.shapes[i];
      for (size_t j = 0; open && j < shape.size(); ++j) shape[j] = e.dynamic[i][j] ? -1 : shape[j];
      in.push_back(builder.shape(shape));
    }
    bool right = plugin.getOutputShapes(in.data(), int32_t(in.size()), nullptr, 0, out.data(),
                                        int32_t(out.size()), builder) == 0;
    for (size_t i = 0; right && i < out.size(); ++i) {
      Shape expected = e.output_shapes[i];
      for (int32_t j = 0; open && j < in[0].nbDims; ++j) {
        if (!e.dynamic[0][j]) continue;
        right = right && out[i].d[j] == in[0].d[j];  // the very same symbol
        expected[j] = -1;
      }
      right = right && same(out[i], expected);
    }
    report.check(right, e.name + (open ? ": output shapes of open sizes"
                                       : ": output shapes of known sizes"));
  }
}

void check_bad_shapes(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  for (const BadShapes& row : bad_shapes()) {
    if (row.name != e.name) continue;
    SizeBuilder builder;
    std::vector<nvinfer1::DimsExprs> in, out(e.outputs.size());
    for (const Shape& shape : row.shapes) in.push_back(builder.shape(shape));
    const std::vector<DynamicPluginTensorDesc> ins = described(row.shapes, e.inputs),
                                               outs = described(e.output_shapes, e.outputs);
    bool refused = false;
    std::string printed = words([&] {
      refused = plugin.getOutputShapes(in.data(), int32_t(in.size()), nullptr, 0, out.data(),
                                       int32_t(out.size()), builder) != 0;
    });
    report.check(
        refused && printed.find(row.expected) != std::string::npos,
        e.name + ": getOutputShapes says \"" + row.expected + "\"; it printed: " + printed);
    printed = words([&] {
      refused = plugin.configurePlugin(ins.data(), int32_t(ins.size()), outs.data(),
                                       int32_t(outs.size())) != 0;
    });
    report.check(
        refused && printed.find(row.expected) != std::string::npos,
        e.name + ": configurePlugin says \"" + row.expected + "\"; it printed: " + printed);
  }
}

// A profile whose best shapes are good and whose largest ones are not: the workspace, which is made
// for the largest, could not be given.
void check_bad_largest(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  for (const BadShapes& row : bad_largest()) {
    if (row.name != e.name) continue;
    std::vector<DynamicPluginTensorDesc> in = described(e.shapes, e.inputs),
                                         largest = described(row.shapes, e.inputs);
    const std::vector<DynamicPluginTensorDesc> out = described(e.output_shapes, e.outputs);
    for (size_t i = 0; i < in.size(); ++i) in[i].max = largest[i].max;
    bool refused = false;
    const std::string printed = words([&] {
      refused = plugin.configurePlugin(in.data(), int32_t(in.size()), out.data(),
                                       int32_t(out.size())) != 0;
    });
    report.check(refused && printed.find(row.expected) != std::string::npos,
                 e.name + ": configurePlugin says of the largest shapes \"" + row.expected +
                     "\"; it printed: " + printed);
  }
}

// A workspace for the largest shapes serves the smaller ones.
void check_workspace(nvinfer1::IPluginV3OneBuild& plugin, const Example& e, Report& report) {
  const std::vector<DynamicPluginTensorDesc> out = described(e.output_shapes, e.outputs);
  size_t before = 0;
  for (const int64_t batch : {1, 2, 3, 17, 1000}) {
    std::vector<Shape> shapes = e.shapes;
    shapes[0][0] = batch;
    const std::vector<DynamicPluginTensorDesc> in = described(shapes, e.inputs);
    const size_t bytes =
        plugin.getWorkspaceSize(in.data(), int32_t(in.size()), out.data(), int32_t(out.size()));
    report.check(bytes >= before, e.name + ": the workspace grows with the shape");
    before = bytes;
  }
  report.check(before < size_t(1) << 32, e.name + ": the workspace is below 4 GiB");
}

}  // namespace

void check_build(nvinfer1::IPluginCreatorV3One& creator, const Example& e, Report& report) {
  const PluginPointer plugin = create(creator, e.fields);
  if (plugin == nullptr) return;  // reported by check_creator
  nvinfer1::IPluginV3OneCore* const named = core(*plugin);
  nvinfer1::IPluginV3OneBuild* const built = build(*plugin);
  report.check(named != nullptr && built != nullptr && runtime(*plugin) != nullptr,
               e.name + ": all three capabilities");
  if (named == nullptr || built == nullptr) return;
  report.check(named->getPluginName() == e.name && std::string(named->getPluginVersion()) == "1" &&
                   std::string(named->getPluginNamespace()).empty(),
               e.name + ": name, version and namespace of the plugin");
  check_types(*built, e, report);
  if (built->getNbOutputs() != int32_t(e.outputs.size())) return;
  check_formats(*built, e, report);
  check_shapes(*built, e, report);
  check_bad_shapes(*built, e, report);
  check_bad_largest(*built, e, report);
  const std::vector<DynamicPluginTensorDesc> in = described(e.shapes, e.inputs),
                                             out = described(e.output_shapes, e.outputs);
  report.check(
      built->configurePlugin(in.data(), int32_t(in.size()), out.data(), int32_t(out.size())) == 0,
      e.name + ": configurePlugin takes a good shape");
  check_workspace(*built, e, report);
}

}  // namespace nystra::host
