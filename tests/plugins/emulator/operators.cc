// The operators with CUDA kernels under the emulator as a C function, for ctypes. It copies the
// inputs, and passes the kernels outputs and a workspace of exactly the right size that hold NaN:
// AddressSanitizer sees what is read or written beyond them.
#include "operators/operators.h"

#include <cstring>
#include <memory>

#include "block_emulator.h"
#include "races.h"

namespace {

using nystra::Schema;
using nystra::Shape;
using nystra::Type;

constexpr int kRefused = 4;  // after the numbers of nystra::Status

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

// One call: its attributes by name, sizes of its inputs one after another, and where data lie.
struct Request {
  const char* const* names;
  const double* numbers;
  int64_t attributes;
  Type type;
  const int64_t *ranks, *sizes;
  const void* const* inputs;
  void* const* outputs;
  nystra::cuda::LaunchLimits limits;
};

size_t bytes_of(const Shape& shape, char kind, Type type) {
  int64_t bytes = kind == 'I' ? sizeof(int32_t) : nystra::element_bytes(type);
  for (int axis = 0; axis < shape.rank; ++axis) bytes *= shape[axis];
  return size_t(bytes);
}

nystra::Attributes attributes_of(const Schema& schema, const Request& r) {
  return nystra::Attributes(schema, [&](const nystra::Attribute& wanted) -> nystra::Value {
    for (int64_t i = 0; i < r.attributes; ++i)
      if (std::strcmp(r.names[i], wanted.name) == 0)
        return {int64_t(r.numbers[i]), float(r.numbers[i])};
    throw nystra::Refusal(std::string("no ") + wanted.name);
  });
}

template <class Operator>
int run(const Request& r) {
  const Schema& schema = Operator::kSchema;
  const Operator op(attributes_of(schema, r));
  Shape shapes[nystra::kMaxTensors];
  const void* inputs[nystra::kMaxTensors];
  void* outputs[nystra::kMaxTensors];
  std::vector<Memory> in, out;
  for (int i = 0, size = 0; schema.inputs[i] != '\0'; ++i) {
    for (int axis = 0; axis < r.ranks[i]; ++axis) shapes[i][shapes[i].rank++] = r.sizes[size++];
    in.emplace_back(-1, r.inputs[i], bytes_of(shapes[i], schema.inputs[i], r.type));
    inputs[i] = in.back().get();
  }
  op.check(shapes);
  int slot = 0;
  for (; schema.outputs[slot] != '\0'; ++slot) {
    const Shape shape = op.output(slot, shapes);
    out.emplace_back(slot, bytes_of(shape, schema.outputs[slot], r.type));
    outputs[slot] = out.back().get();
  }
  const Memory workspace(slot, op.workspace(shapes, r.type, r.limits));
  const nystra::Status status =
      op.launch({r.type, shapes, inputs, outputs}, workspace.get(), nullptr, r.limits);
  for (size_t i = 0; i < out.size(); ++i) out[i].copy_to(r.outputs[i]);
  return int(status);
}

}  // namespace

#define EMULATED extern "C" __attribute__((visibility("default")))

EMULATED void emulator_seed(unsigned seed) { emu::state.seed = seed; }

// Launches with more blocks run their last one alone: for maps that are too large to be computed.
EMULATED void emulator_most_blocks(uint64_t blocks) { emu::state.most_blocks = size_t(blocks); }

EMULATED const char* emulator_error() { return emu::state.error.c_str(); }

EMULATED long emulator_switches() { return emu::state.switches; }

// A device whose kernels may request so much shared memory a block; none has requested any yet.
EMULATED void emulator_device(int64_t shared_bytes) {
  emu::state.device_shared = size_t(shared_bytes);
  emu::state.allowed_shared.clear();
  emu::state.most_shared = 0;
}

// The most that a launch took since then.
EMULATED int64_t emulator_most_shared() { return int64_t(emu::state.most_shared); }

// Runs the operator of a node type. limits: shared bytes, warps, blocks.
EMULATED int emulated_run(const char* operator_name, const char* const* names,
                          const double* numbers, int64_t attributes, int type, const int64_t* ranks,
                          const int64_t* sizes, const void* const* inputs, void* const* outputs,
                          const int64_t* limits) {
  const Request request{names,      numbers, attributes,
                        Type{type}, ranks,   sizes,
                        inputs,     outputs, {limits[0], limits[1], limits[2]}};
  emu::state.error.clear();
  try {
#define EMULATED_TRY(Operator)                                         \
  if (std::strcmp(operator_name, nystra::Operator::kSchema.name) == 0) \
    return run<nystra::Operator>(request);
    NYSTRA_CUDA_OPERATORS(EMULATED_TRY)
#undef EMULATED_TRY
    throw nystra::Refusal("no such operator with a CUDA kernel");
  } catch (const std::exception& error) {
    emu::state.error = error.what();
    return kRefused;
  }
}
