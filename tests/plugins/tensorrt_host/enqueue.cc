#include "enqueue.h"

#include <cuda_runtime_api.h>

#include <cstdio>

#include "cases.h"
#include "device_memory.h"

namespace nystra::host {
namespace {

using nvinfer1::PluginTensorDesc;

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
  const Prepared ready = prepare(library, c);
  if (ready.plugin == nullptr)
    return write(out_folder + "/" + c.name + ".refused", {ready.words.begin(), ready.words.end()});

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
  Buffer workspace(ready.workspace);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  std::vector<std::vector<char>> first;
  for (const bool captured : {false, true}) {
    for (size_t i = c.in.size(); i < buffers.size(); ++i) buffers[i]->fill();
    workspace.fill();
    check(cudaDeviceSynchronize(), "fill");
    run(*runtime(*ready.plugin), c, in, out, workspace.get(), stream, captured);
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
