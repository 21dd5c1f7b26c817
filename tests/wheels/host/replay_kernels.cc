// Replays recorded rows by the C interface of the CPU kernels:
//   replay_kernels LIBNYSTRA_CPU FOLDER
#include <algorithm>
#include <cstdio>

#include "dynamic_library.h"
#include "nystra_cpu.h"
#include "rows.h"

namespace {

int32_t type_of(const std::string& kind) {
  return kind == "float32"   ? NYSTRA_CPU_FLOAT32
         : kind == "float16" ? NYSTRA_CPU_FLOAT16
                             : NYSTRA_CPU_INT32;
}

std::vector<nystra_cpu_tensor> described(std::vector<Tensor>& tensors) {
  std::vector<nystra_cpu_tensor> all;
  for (Tensor& tensor : tensors) {
    nystra_cpu_tensor one = {
        tensor.bytes.data(), type_of(tensor.kind), int32_t(tensor.shape.size()), {}};
    std::copy(tensor.shape.begin(), tensor.shape.end(), one.shape);
    all.push_back(one);
  }
  return all;
}

bool same_shape(const nystra_cpu_tensor& a, const nystra_cpu_tensor& b) {
  return a.type == b.type && a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

}  // namespace

int main(int count, char** words) try {
  if (count != 3) {
    std::fputs("usage: replay_kernels LIBNYSTRA_CPU FOLDER\n", stderr);
    return 2;
  }
  const DynamicLibrary library(words[1]);
  const auto run = library.function<decltype(nystra_cpu_run)>("nystra_cpu_run");
  const auto outputs_of = library.function<decltype(nystra_cpu_outputs)>("nystra_cpu_outputs");
  const auto error = library.function<decltype(nystra_cpu_error)>("nystra_cpu_error");
  std::printf("instruction set %s\n", library.function<decltype(nystra_isa)>("nystra_isa")());

  std::vector<Row> rows = read_rows(words[2]);
  rows.erase(std::remove_if(rows.begin(), rows.end(), [](const Row& row) { return row.op == "-"; }),
             rows.end());
  return replay("interface", std::move(rows), [&](Row& row, std::string& message) {
    std::vector<nystra_cpu_attribute> attributes;
    for (const Attribute& one : row.attributes)
      attributes.push_back({one.name.c_str(), one.is_number, one.integer, one.number});
    const auto inputs = described(row.inputs), outputs = described(row.outputs);
    auto shapes = outputs;
    const char* const name = row.op.c_str();
    int32_t status = outputs_of(name, attributes.data(), attributes.size(), inputs.data(),
                                inputs.size(), shapes.data(), shapes.size());
    if (status == NYSTRA_CPU_OK &&
        !std::equal(shapes.begin(), shapes.end(), outputs.begin(), outputs.end(), same_shape)) {
      message = "other shapes";
      return false;
    }
    if (status == NYSTRA_CPU_OK)
      status = run(name, attributes.data(), attributes.size(), inputs.data(), inputs.size(),
                   outputs.data(), outputs.size(), 2);
    if (status != NYSTRA_CPU_OK) message = error();
    return status == NYSTRA_CPU_OK;
  });
} catch (const std::exception& failure) {
  std::fprintf(stderr, "replay_kernels: %s\n", failure.what());
  return 1;
}
