#include "cases.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace nystra::host {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginTensorDesc;

size_t element_bytes(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kINT32 ? 4 : 2;
}

PluginTensorDesc read_tensor(std::istringstream& line, DataType element) {
  PluginTensorDesc tensor{};
  std::string kind;
  line >> kind;
  tensor.type = kind == "I" ? DataType::kINT32 : element;
  tensor.format = nvinfer1::TensorFormat::kLINEAR;
  for (int64_t size; line >> size;) tensor.dims.d[tensor.dims.nbDims++] = size;
  return tensor;
}

std::vector<nvinfer1::DynamicPluginTensorDesc> dynamic(
    const std::vector<PluginTensorDesc>& tensors) {
  std::vector<nvinfer1::DynamicPluginTensorDesc> result;
  for (const PluginTensorDesc& tensor : tensors)
    result.push_back({tensor, tensor.dims, tensor.dims, tensor.dims});
  return result;
}

}  // namespace

size_t bytes(const PluginTensorDesc& tensor) {
  size_t n = element_bytes(tensor.type);
  for (int32_t i = 0; i < tensor.dims.nbDims; ++i) n *= size_t(tensor.dims.d[i]);
  return n;
}

std::vector<char> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::vector<char>& data) {
  std::ofstream file(path, std::ios::binary);
  file.write(data.data(), std::streamsize(data.size()));
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Case> cases;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word, name;
    line >> word;
    if (word == "case") {
      Case row;
      std::string type;
      line >> row.name >> row.op >> type;
      row.type = type == "float16"    ? DataType::kHALF
                 : type == "bfloat16" ? DataType::kBF16
                                      : DataType::kFLOAT;
      cases.push_back(row);
    } else if (cases.empty()) {
      throw std::runtime_error(path + " does not begin with a case");
    } else if (word == "int") {
      int32_t value = 0;
      line >> name >> value;
      cases.back().fields[name] = value;
    } else if (word == "float") {
      line >> name >> word;
      cases.back().fields[name] = std::stof(word);
    } else if (word == "in") {
      cases.back().in.push_back(read_tensor(line, cases.back().type));
      cases.back().fill.emplace_back();
    } else if (word == "fill" && !cases.back().fill.empty()) {
      line >> word;
      cases.back().fill.back() = std::stof(word);
    } else if (word == "out") {
      cases.back().out.push_back(read_tensor(line, cases.back().type));
    }
  }
  return cases;
}

Prepared prepare(const Library& library, const Case& c) {
  nvinfer1::IPluginCreatorV3One* const creator = library.creator(c.op);
  if (creator == nullptr) throw std::runtime_error("the library has no " + c.op);
  Prepared result;
  int32_t shapes = -1;
  result.words = words([&] {
    result.plugin = create(*creator, c.fields);
    if (result.plugin != nullptr)
      shapes = runtime(*result.plugin)
                   ->onShapeChange(c.in.data(), int32_t(c.in.size()), c.out.data(),
                                   int32_t(c.out.size()));
  });
  if (shapes != 0) {
    result.plugin.reset();
    return result;
  }
  const auto in = dynamic(c.in), out = dynamic(c.out);
  result.workspace =
      build(*result.plugin)
          ->getWorkspaceSize(in.data(), int32_t(in.size()), out.data(), int32_t(out.size()));
  return result;
}

}  // namespace nystra::host
