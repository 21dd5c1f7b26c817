// Runs one block of a kernel: its threads are fibers, barriers and warp operations switch them.
//
// A fiber runs until it reaches __syncthreads() or a warp operation, so between two barriers the
// threads run one after another, in an order that the seed chooses: a missing barrier shows up as
// a wrong result. Shared memory holds NaN when a block starts. Threads that wait for each other
// for ever, or leave the kernel while others wait at a barrier, make the launch fail with a text.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_types.h"
#include "fibers.h"

#define EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()  // of the call

namespace emu {

constexpr size_t kRedZone = 32;             // poisoned bytes between two shared arrays
constexpr size_t kSharedLimit = 48 * 1024;  // of a block whose kernel requested no more
constexpr size_t kSharedArrays = 64;        // of a block at most
constexpr int kWarp = 32;

enum class Waits { kReady, kAtBarrier, kInWarp, kDone };
enum class WarpOp { kSync, kIndex, kUp, kDown, kXor, kBallot };

struct Fiber {
  Context context;
  char* stack;
  SwitchNotice notice;
  uint3 index;
  Waits state;
  const char* file;  // where it waits
  int line;
  WarpOp op;  // the warp operation it waits in, and its arguments
  unsigned mask;
  int argument, width;
  uint64_t value, result;
  size_t shared_arrays;      // taken so far
  int barriers, warp_syncs;  // passed so far, for the race detector
};

struct Emulator {
  std::vector<Fiber> fibers;
  std::vector<unsigned> waiting;  // of each warp: the lanes in a warp operation
  int current = 0;
  Context scheduler{};
  SwitchNotice scheduler_notice;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
  std::function<void()> body;
  unsigned char* dynamic_shared = nullptr;
  size_t shared_bytes = 0, memory_bytes = 0;     // of the launch; with the red zones
  size_t device_shared = kSharedLimit;           // of a block, for a kernel that asks
  size_t most_shared = 0;                        // of the launches so far
  std::map<const void*, size_t> allowed_shared;  // of the kernels that requested it
  unsigned seed = 0;
  size_t most_blocks = SIZE_MAX;  // of a launch with more the last block alone runs
  std::string error;
  cudaError_t last_error = cudaSuccess;
  cudaStream_t stream = nullptr;  // the one that work must be put on
  bool in_block = false;
  long switches = 0, block = 0, first_block = 0;  // blocks count on from launch to launch
};
inline Emulator state;

__attribute__((noinline)) inline void to_scheduler() {
  Fiber& self = state.fibers[size_t(state.current)];
  self.notice.begin(state.scheduler_stack, state.scheduler_stack_bytes, self.state == Waits::kDone);
  switch_to(self.context, state.scheduler);
  self.notice.end(nullptr, nullptr);
}

__attribute__((noinline)) inline void to_fiber(int i) {
  Fiber& fiber = state.fibers[size_t(i)];
  state.current = i;
  threadIdx = fiber.index;
  ++state.switches;
  state.scheduler_notice.begin(fiber.stack, kStackBytes, false);
  switch_to(state.scheduler, fiber.context);
  state.scheduler_notice.end(nullptr, nullptr);
}

inline void fiber_main() {
  SwitchNotice().end(&state.scheduler_stack, &state.scheduler_stack_bytes);
  state.body();
  state.fibers[size_t(state.current)].state = Waits::kDone;
  to_scheduler();
}

// Gives up the block.
[[noreturn]] inline void fail(const std::string& text) {
  if (state.error.empty()) state.error = text;
  to_scheduler();
  std::abort();
}

inline std::string place(const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line);
}

inline std::string whereabouts(const Fiber& f) {
  if (f.state == Waits::kDone) return "left the kernel";
  const char* const what =
      f.state == Waits::kAtBarrier ? "wait at __syncthreads in " : "wait in a warp operation in ";
  return what + place(f.file, f.line);
}

inline void wait(Waits why, const char* file, int line) {
  Fiber& self = state.fibers[size_t(state.current)];
  self.state = why;
  self.file = file;
  self.line = line;
  to_scheduler();
}

// The lane whose value a lane of a shuffle gets.
inline int source_lane(const Fiber& f, int lane) {
  const int first = lane & ~(f.width - 1), last = first + f.width - 1;
  switch (f.op) {
    case WarpOp::kIndex: return first + (f.argument & (f.width - 1));
    case WarpOp::kUp: return lane - f.argument >= first ? lane - f.argument : lane;
    case WarpOp::kDown: return lane + f.argument <= last ? lane + f.argument : lane;
    case WarpOp::kXor: return (lane ^ f.argument) <= last ? lane ^ f.argument : lane;
    default: return lane;
  }
}

// The last lane of the mask to arrive checks, computes the results of all and lets them go.
inline uint64_t warp_operation(WarpOp op, unsigned mask, uint64_t value, int argument, int width,
                               const char* file, int line) {
  const int self = state.current, base = self / kWarp * kWarp, lane = self % kWarp;
  const auto lane_fiber = [&](int i) -> Fiber& { return state.fibers[size_t(base + i)]; };
  if (!(mask >> lane & 1u))
    fail("the mask of a warp operation leaves out its own lane: " + place(file, line));
  Fiber& mine = lane_fiber(lane);
  mine.op = op;
  mine.mask = mask;
  mine.value = value;
  mine.argument = argument;
  mine.width = width;
  unsigned& waiting = state.waiting[size_t(self / kWarp)];
  waiting |= 1u << lane;
  if ((waiting & mask) != mask) {
    wait(Waits::kInWarp, file, line);
    return mine.result;
  }
  waiting &= ~mask;
  for (int i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1u) || i == lane) continue;
    const Fiber& other = lane_fiber(i);
    if (other.mask != mask || other.op != op || other.line != line)
      fail("lanes of one warp are in different warp operations: " + whereabouts(other) + " and " +
           place(file, line));
  }
  uint64_t ballot = 0;
  for (int i = 0; op == WarpOp::kBallot && i < kWarp; ++i)
    if ((mask >> i & 1u) && lane_fiber(i).value) ballot |= uint64_t(1) << i;
  for (int i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1u)) continue;
    Fiber& f = lane_fiber(i);
    const int source = source_lane(f, i);
    if (!(mask >> source & 1u))
      fail("a shuffle reads a lane outside its mask: " + place(file, line));
    f.result = op == WarpOp::kBallot ? ballot : lane_fiber(source).value;
    f.state = Waits::kReady;
    if (op == WarpOp::kSync) ++f.warp_syncs;  // the others do not order memory accesses
  }
  return mine.result;
}

template <class T>
T shuffle(WarpOp op, unsigned mask, T value, int argument, int width, const char* file, int line) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(op, mask, bits, argument, width, file, line);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Called before the shared arrays: a kernel may lay them out again, in the same places.
inline void begin_shared_arrays() { state.fibers[size_t(state.current)].shared_arrays = 0; }

// Called after each shared array: checks that it fits and puts a red zone behind it.
inline void end_of_shared_array(const void* end, unsigned char*& next) {
  Fiber& self = state.fibers[size_t(state.current)];
  if (++self.shared_arrays > kSharedArrays)
    fail("more shared arrays than the emulator has red zones for");
  const size_t used = size_t(next - state.dynamic_shared) - (self.shared_arrays - 1) * kRedZone;
  if (used > state.shared_bytes) fail("the shared arrays need more bytes than the launch gave");
  poison_for_asan(end, size_t(next + kRedZone - static_cast<const unsigned char*>(end)));
  next += kRedZone;
}

// NaN in float, half and bfloat16.
__attribute__((no_sanitize("address", "thread"))) inline void fill_with_nan(unsigned char* first,
                                                                            size_t bytes) {
  for (volatile unsigned char* p = first; p < first + bytes; ++p) *p = 0xff;
}

inline void start_fiber(int i) {
  Fiber& f = state.fibers[size_t(i)];
  f.stack = stack_of(size_t(i));
  const unsigned x = blockDim.x, y = blockDim.y, n = unsigned(i);
  f.index = {n % x, n / x % y, n / (x * y)};
  unpoison_for_asan(f.stack, kStackBytes);
  make_context(f.context, f.stack, fiber_main);
}

// No fiber can run: lets all of them through the barrier they wait at. Returns whether any is left.
inline bool pass_barrier() {
  bool together = true, done = true;
  for (const Fiber& f : state.fibers) {
    together = together && f.state == Waits::kAtBarrier && f.line == state.fibers[0].line;
    done = done && f.state == Waits::kDone;
  }
  if (done) return false;
  if (!together) {
    std::map<std::string, int> places;
    for (const Fiber& f : state.fibers) ++places[whereabouts(f)];
    state.error = "threads of a block wait for each other:";
    for (const auto& [where, count] : places)
      state.error += " " + std::to_string(count) + " " + where + ";";
    return false;
  }
  for (Fiber& f : state.fibers) {
    f.state = Waits::kReady;
    ++f.barriers;
  }
  return true;
}

// Runs the block blockIdx. Seed 0: threads in their order, 1: backwards, others: shuffled each
// time.
inline void run_block() {
  const int threads = int(blockDim.x * blockDim.y * blockDim.z);
  ++state.block;
  unpoison_for_asan(state.dynamic_shared, state.memory_bytes);
  fill_with_nan(state.dynamic_shared, state.memory_bytes);
  state.fibers.assign(size_t(threads), Fiber{});
  state.waiting.assign(size_t(threads / kWarp), 0);
  for (int i = 0; i < threads; ++i) start_fiber(i);
  std::vector<int> order(static_cast<size_t>(threads));
  std::iota(order.begin(), order.end(), 0);
  if (state.seed == 1) std::reverse(order.begin(), order.end());
  std::mt19937 random(state.seed);
  do {
    for (bool ran = true; ran;) {
      ran = false;
      if (state.seed > 1) std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        if (state.fibers[size_t(i)].state != Waits::kReady) continue;
        ran = true;
        to_fiber(i);
        if (!state.error.empty()) return;
      }
    }
  } while (pass_barrier());
}

}  // namespace emu
