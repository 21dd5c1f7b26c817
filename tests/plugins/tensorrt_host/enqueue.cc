#include "enqueue.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace nystra::host {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginTensorDesc;

constexpr size_t kGuard = 256;  // bytes on either side of a buffer

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

struct Case {
  std::string name, op;
  DataType type = DataType::kFLOAT;
  Fields fields;
  std::vector<PluginTensorDesc> in, out;
};

size_t element_bytes(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kINT32 ? 4 : 2;
}

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

PluginTensorDesc read_tensor(std::istringstream& line, DataType element) {
  PluginTensorDesc tensor{};
  std::string kind;
  line >> kind;
  tensor.type = kind == "I" ? DataType::kINT32 : element;
  tensor.format = nvinfer1::TensorFormat::kLINEAR;
  for (int64_t size; line >> size;) tensor.dims.d[tensor.dims.nbDims++] = size;
  return tensor;
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
    } else if (word == "out") {
      cases.back().out.push_back(read_tensor(line, cases.back().type));
    }
  }
  return cases;
}

// Device memory between guards, all bytes 0xFF: NaN in every element type.
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size) {
    check(cudaMalloc(&memory_, size_ + 2 * kGuard), "cudaMalloc");
    fill();
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void fill() { check(cudaMemset(memory_, 0xFF, size_ + 2 * kGuard), "cudaMemset"); }
  void* get() const { return static_cast<char*>(memory_) + kGuard; }

  void copy_from(const std::vector<char>& data) {
    if (data.size() != size_)
      throw std::runtime_error("an input file has another size than its shape");
    check(cudaMemcpy(get(), data.data(), size_, cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
  }

  // The bytes; throws where a guard was written to.
  std::vector<char> contents() const {
    std::vector<char> all(size_ + 2 * kGuard);
    check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost),
          "cudaMemcpy from the device");
    for (size_t i = 0; i < kGuard; ++i)
      if (all[i] != '\xFF' || all[all.size() - 1 - i] != '\xFF')
        throw std::runtime_error("bytes around a buffer were written");
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  size_t size_;
  void* memory_ = nullptr;
};

std::vector<nvinfer1::DynamicPluginTensorDesc> dynamic(
    const std::vector<PluginTensorDesc>& tensors) {
  std::vector<nvinfer1::DynamicPluginTensorDesc> result;
  for (const PluginTensorDesc& tensor : tensors)
    result.push_back({tensor, tensor.dims, tensor.dims, tensor.dims});
  return result;
}

// Runs enqueue once, or captures it and replays the graph once.
void run(nvinfer1::IPluginV3OneRuntime& plugin, const Case& c, const std::vector<const void*>& in,
         const std::vector<void*>& out, void* workspace, cudaStream_t stream, bool captured) {
  if (captured) check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  const int32_t status =
      plugin.enqueue(c.in.data(), c.out.data(), in.data(), out.data(), workspace, stream);
  if (captured) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "end capture");
    check(cudaGraphInstantiate(&ready, graph, 0), "instantiate the graph");
    check(cudaGraphLaunch(ready, stream), "launch the graph");
    check(cudaStreamSynchronize(stream), "the graph");
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  }
  if (status != 0) throw std::runtime_error("enqueue returned " + std::to_string(status));
  check(cudaStreamSynchronize(stream), "the kernel");
}

void run_case(const Library& library, const Case& c, const std::string& folder,
              const std::string& out_folder) {
  nvinfer1::IPluginCreatorV3One* const creator = library.creator(c.op);
  if (creator == nullptr) throw std::runtime_error("the library has no " + c.op);
  PluginPointer plugin;
  int32_t shapes = -1;
  const std::string printed = words([&] {
    plugin = create(*creator, c.fields);
    if (plugin != nullptr)
      shapes = runtime(*plugin)->onShapeChange(c.in.data(), int32_t(c.in.size()), c.out.data(),
                                               int32_t(c.out.size()));
  });
  if (shapes != 0)
    return write(out_folder + "/" + c.name + ".refused", {printed.begin(), printed.end()});

  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < c.in.size(); ++i) {
    buffers.push_back(std::make_unique<Buffer>(bytes(c.in[i])));
    buffers.back()->copy_from(read(folder + "/" + c.name + ".in" + std::to_string(i)));
    in.push_back(buffers.back()->get());
  }
  for (const PluginTensorDesc& tensor : c.out) {
    buffers.push_back(std::make_unique<Buffer>(bytes(tensor)));
    out.push_back(buffers.back()->get());
  }
  const auto in_dynamic = dynamic(c.in), out_dynamic = dynamic(c.out);
  const size_t needed =
      build(*plugin)->getWorkspaceSize(in_dynamic.data(), int32_t(in_dynamic.size()),
                                       out_dynamic.data(), int32_t(out_dynamic.size()));
  Buffer workspace(needed);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  std::vector<std::vector<char>> first;
  for (const bool captured : {false, true}) {
    for (size_t i = c.in.size(); i < buffers.size(); ++i) buffers[i]->fill();
    workspace.fill();
    check(cudaDeviceSynchronize(), "fill");
    run(*runtime(*plugin), c, in, out, workspace.get(), stream, captured);
    workspace.contents();
    for (size_t i = 0; i < c.out.size(); ++i) {
      std::vector<char> result = buffers[c.in.size() + i]->contents();
      if (!captured) {
        write(out_folder + "/" + c.name + ".out" + std::to_string(i), result);
        first.push_back(std::move(result));
      } else if (result != first[i]) {
        throw std::runtime_error("a captured graph gives other bytes");
      }
    }
  }
  cudaStreamDestroy(stream);
}

}  // namespace

bool device(std::string* words) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    *words = status == cudaSuccess ? "no CUDA device" : cudaGetErrorString(status);
    return false;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  *words = std::string(properties.name) + ", sm_" +
           std::to_string(10 * properties.major + properties.minor);
  return true;
}

int run_cases(const Library& library, const std::string& folder, const std::string& out) {
  int failed = 0;
  const std::vector<Case> cases = read_cases(folder + "/cases.txt");
  for (const Case& row : cases) {
    try {
      run_case(library, row, folder, out);
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAILED: case %s, %s: %s\n", row.name.c_str(), row.op.c_str(), error.what());
    }
  }
  std::printf("%zu cases, %d failed\n", cases.size(), failed);
  return failed;
}

}  // namespace nystra::host
