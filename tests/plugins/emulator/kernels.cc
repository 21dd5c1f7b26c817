// The kernels under the emulator as C functions, for ctypes. Each copies its input, and gives the
// kernel an output and a workspace of exactly the right size that hold NaN: AddressSanitizer sees
// what is read or written beside them.
#include <cstring>
#include <memory>

#include "block_emulator.h"
#include "kernels/cuda/kernels_cuda.h"
#include "races.h"

namespace {

using nystra::ClusterParams;
using nystra::LandmarkParams;
using nystra::PatchMatchParams;
using nystra::PinvParams;
using nystra::Status;
using nystra::Type;
using nystra::WindowShape;
using nystra::cuda::Limits;

// Device memory: a block of its own, full of NaN, watched for races where it has a slot.
class Memory {
 public:
  Memory(int slot, size_t bytes)
      : bytes_(bytes), memory_(bytes == 0 ? nullptr : new unsigned char[bytes]) {
    if (bytes > 0) std::memset(memory_.get(), 0xff, bytes);
    if (slot >= 0) emu::watch(slot, memory_.get(), bytes);
  }
  Memory(int slot, const void* source, size_t bytes) : Memory(slot, bytes) {
    if (bytes > 0) std::memcpy(memory_.get(), source, bytes);
  }

  void* get() const { return memory_.get(); }
  void copy_to(void* target) const {
    if (bytes_ > 0) std::memcpy(target, memory_.get(), bytes_);
  }

 private:
  size_t bytes_;
  std::unique_ptr<unsigned char[]> memory_;
};

size_t element_bytes(Type type) { return type == Type::kFloat ? 4 : 2; }

WindowShape shape_of(const int64_t* n, float scale) {
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], scale};
}

Limits limits_of(const int64_t* n) { return {n[0], n[1], n[2], n[3] != 0}; }

}  // namespace

#define EMULATED extern "C" __attribute__((visibility("default")))

EMULATED void emulator_seed(unsigned seed) { emu::state.seed = seed; }

EMULATED const char* emulator_error() { return emu::state.error.c_str(); }

EMULATED long emulator_switches() { return emu::state.switches; }

// A device whose kernels may ask for so much shared memory a block; nobody asked yet.
EMULATED void emulator_device(int64_t shared_bytes) {
  emu::state.device_shared = size_t(shared_bytes);
  emu::state.allowed_shared.clear();
  emu::state.most_shared = 0;
}

// The most that a launch took since then.
EMULATED int64_t emulator_most_shared() { return int64_t(emu::state.most_shared); }

EMULATED int emulated_pinv(const int64_t* sizes, int batch_init, int type_number, const void* a,
                           void* z, const int64_t* limit_numbers) {
  const PinvParams params{sizes[0], sizes[1], sizes[2]};
  const Type type{type_number};
  const Limits limits = limits_of(limit_numbers);
  const size_t bytes = size_t(params.matrices * params.size * params.size) * element_bytes(type);
  const Memory in(-1, a, bytes), out(0, bytes);
  const Memory workspace(1, nystra::cuda::pinv_workspace(params, batch_init, limits));
  const Status status = nystra::cuda::pinv(params, batch_init, type, in.get(), out.get(),
                                           workspace.get(), nullptr, limits);
  out.copy_to(z);
  return int(status);
}

// form 0: NystraWindowSoftmax, 1: NystraWindowOverlap
EMULATED int emulated_softmax_windows(int form, const int64_t* sizes, float scale,
                                      const int64_t* margins, int type_number, const void* qkv,
                                      const void* bias_table, void* result,
                                      const int64_t* limit_numbers) {
  using namespace nystra::cuda;
  WindowShape shape = shape_of(sizes, scale);
  shape.margin_h = margins[0];
  shape.margin_w = margins[1];
  const Type type{type_number};
  const Limits limits = limits_of(limit_numbers);
  const size_t pixels = size_t(shape.batch * shape.height * shape.width),
               element = element_bytes(type);
  const size_t entries = size_t(shape.bias_rows() * shape.heads);
  const Memory in(-1, qkv, pixels * size_t(shape.channels()) * element);
  const Memory out(0, pixels * size_t(shape.heads * shape.value_dim) * element);
  const auto workspace_bytes = form == 0 ? window_softmax_workspace : window_overlap_workspace;
  const Memory workspace(1, workspace_bytes(shape, limits));
  const Memory table(-1, bias_table, bias_table == nullptr ? 0 : entries * element);
  const auto call = form == 0 ? window_softmax : window_overlap;
  const Status status =
      call(shape, type, in.get(), table.get(), out.get(), workspace.get(), nullptr, limits);
  out.copy_to(result);
  return int(status);
}

EMULATED int emulated_window_cluster(const int64_t* sizes, float scale, const int64_t* clusters,
                                     int type_number, const void* qkv, const void* bias_table,
                                     void* result, const int64_t* limit_numbers) {
  const ClusterParams params{
      shape_of(sizes, scale), clusters[0], clusters[1], clusters[2], clusters[3], clusters[4]};
  const Type type{type_number};
  const Limits limits = limits_of(limit_numbers);
  const WindowShape& shape = params.shape;
  const size_t pixels = size_t(shape.batch * shape.height * shape.width),
               element = element_bytes(type);
  const Memory in(-1, qkv, pixels * size_t(shape.channels()) * element);
  const Memory out(0, pixels * size_t(shape.heads * shape.value_dim) * element);
  const bool biased = bias_table != nullptr;
  const size_t entries = size_t((2 * shape.window_h - 1) * (2 * shape.window_w - 1) * shape.heads);
  const Memory table(-1, bias_table, biased ? entries * element : 0);
  const Memory workspace(1, nystra::cuda::window_cluster_workspace(params, biased, limits));
  const Status status = nystra::cuda::window_cluster(params, type, in.get(), table.get(), out.get(),
                                                     workspace.get(), nullptr, limits);
  out.copy_to(result);
  return int(status);
}

// form 0: NystraWindowNystrom, 1: NystraWindowNystromformer
EMULATED int emulated_landmark_windows(int form, const int64_t* sizes, float scale,
                                       const int64_t* landmarks, float threshold, float guard,
                                       int batch_init, int type_number, const void* qkv,
                                       void* result, const int64_t* limit_numbers) {
  using namespace nystra::cuda;
  const LandmarkParams params{shape_of(sizes, scale), landmarks[0], landmarks[1],
                              landmarks[2],           threshold,    guard};
  const Type type{type_number};
  const Limits limits = limits_of(limit_numbers);
  const WindowShape& shape = params.shape;
  const size_t pixels = size_t(shape.batch * shape.height * shape.width),
               element = element_bytes(type);
  const Memory in(-1, qkv, pixels * size_t(shape.channels()) * element);
  const Memory out(0, pixels * size_t(shape.heads * shape.value_dim) * element);
  const auto workspace_bytes =
      form == 0 ? window_nystrom_workspace : window_nystromformer_workspace;
  const Memory workspace(1, workspace_bytes(params, batch_init, limits));
  const auto call = form == 0 ? window_nystrom : window_nystromformer;
  const Status status =
      call(params, batch_init, type, in.get(), out.get(), workspace.get(), nullptr, limits);
  out.copy_to(result);
  return int(status);
}

// sizes: batch, channels, height, width, key height, key width. attributes: patch_size, iterations,
// neighbors, metric, seed. elements: of each input. steps: of query_mask, key_mask and start.
EMULATED int emulated_patch_match(const int64_t* sizes, const int64_t* attributes, int masked,
                                  int type_number, const void* const* inputs,
                                  const int64_t* elements, const int64_t* steps, void* index,
                                  void* score, const int64_t* limit_numbers) {
  const PatchMatchParams params{sizes[1],      sizes[2],      sizes[3],      sizes[4],
                                sizes[5],      attributes[0], attributes[1], attributes[2],
                                attributes[3], attributes[4], masked != 0,   false};
  const Type type{type_number};
  const Limits limits = limits_of(limit_numbers);
  const size_t element = element_bytes(type);
  const size_t entries = size_t(sizes[0] * params.neighbors * params.height * params.width);
  const Memory query(-1, inputs[0], size_t(elements[0]) * element),
      key(-1, inputs[1], size_t(elements[1]) * element);
  const Memory query_mask(-1, inputs[2], size_t(elements[2]) * element);
  const Memory key_mask(-1, inputs[3], size_t(elements[3]) * element);
  const Memory start(-1, inputs[4], size_t(elements[4]) * sizeof(int32_t));
  const Memory out_index(0, entries * sizeof(int32_t)), out_score(1, entries * element);
  const Memory workspace(2, nystra::cuda::patch_match_workspace(params, sizes[0], limits));
  const nystra::cuda::PatchMatchMaps maps{sizes[0],
                                          query.get(),
                                          key.get(),
                                          query_mask.get(),
                                          key_mask.get(),
                                          {steps[0], steps[1], steps[2]},
                                          {steps[3], steps[4], steps[5]},
                                          static_cast<const int32_t*>(start.get()),
                                          {steps[6], steps[7], steps[8], steps[9]},
                                          static_cast<int32_t*>(out_index.get()),
                                          out_score.get()};
  const Status status =
      nystra::cuda::patch_match(params, type, maps, workspace.get(), nullptr, limits);
  out_index.copy_to(index);
  out_score.copy_to(score);
  return int(status);
}
