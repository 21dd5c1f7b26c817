// Finds two threads that use the same memory, one of them writing, without a barrier between them.
//
// In the race build the kernels are compiled with -fsanitize=thread, which calls the functions
// below before every load and store, and linked WITHOUT ThreadSanitizer, so that these take the
// place of its own. Unlike a wrong result, a report does not depend on the order of the fibers or
// on the values. Between threads of a block __syncthreads() orders, within a warp __syncwarp()
// too; nothing orders two blocks of a launch. Atomics are not seen.
#include "races.h"

#include <dlfcn.h>

#include <cstdio>

#include "block_emulator.h"

#ifndef NYSTRA_EMULATOR_RACES
void emu::watch(int, const void*, size_t) {}
#else

namespace emu {
namespace {

constexpr size_t kSharedGrain = 2, kGlobalGrain = 1;  // bytes that a cell stands for
constexpr int kSlots = 3;

struct Access {
  long block = -1;
  int thread = -1, barriers = -1, warp_syncs = 0;
  const void* place = nullptr;

  bool in_launch() const { return block >= state.first_block; }
};

struct Cell {
  Access writer, reader;  // the last ones
  bool several_readers = false, several_warps = false, several_blocks = false;
};

struct Range {
  size_t start = 0, bytes = 0, grain = 1;
  std::vector<Cell> cells;
};

Range shared, global[kSlots];

std::string report(const char* what, const void* first, const void* second) {
  Dl_info info{};
  dladdr(first, &info);
  const auto offset = [&](const void* p) {
    return long(static_cast<const char*>(p) - static_cast<const char*>(info.dli_fbase));
  };
  char text[200];
  std::snprintf(text, sizeof text, "race: %s, at %#lx and %#lx", what, offset(first),
                offset(second));
  return text;
}

// Whether a barrier lies between two accesses of one launch.
bool ordered(const Access& then, const Access& now) {
  if (then.block != now.block) return false;
  if (then.thread == now.thread || then.barriers != now.barriers) return true;
  return then.thread / kWarp == now.thread / kWarp && now.warp_syncs > then.warp_syncs;
}

// Notes an access. Returns what is wrong with it, or null, and where the other one was.
const char* check(Cell& c, const Access& now, bool write, const void** other) {
  *other = c.writer.place;
  if (c.writer.in_launch() && !ordered(c.writer, now))
    return write ? "two writes" : "a write, then a read";
  *other = c.reader.place;
  const bool same_epoch =
      c.reader.in_launch() && c.reader.block == now.block && c.reader.barriers == now.barriers;
  if (write) {
    const bool by_others = c.several_warps || c.reader.thread / kWarp != now.thread / kWarp ||
                           (c.reader.warp_syncs >= now.warp_syncs &&
                            (c.several_readers || c.reader.thread != now.thread));
    const bool elsewhere =
        c.reader.in_launch() && (c.several_blocks || c.reader.block != now.block);
    if (elsewhere || (same_epoch && by_others)) return "a read, then a write";
    c.writer = now;
    return nullptr;
  }
  c.several_blocks = c.reader.in_launch() && (c.several_blocks || c.reader.block != now.block);
  c.several_warps =
      same_epoch && (c.several_warps || c.reader.thread / kWarp != now.thread / kWarp);
  c.several_readers = same_epoch && c.reader.warp_syncs == now.warp_syncs &&
                      (c.several_readers || c.reader.thread != now.thread);
  c.reader = now;
  return nullptr;
}

Range* range_of(size_t address) {
  const size_t start = reinterpret_cast<size_t>(state.dynamic_shared);
  if (address - start < state.memory_bytes) {
    if (shared.start != start || shared.bytes != state.memory_bytes) {
      shared = Range{start, state.memory_bytes, kSharedGrain, {}};
      shared.cells.resize(state.memory_bytes / kSharedGrain + 1);
    }
    return &shared;
  }
  for (Range& range : global)
    if (address - range.start < range.bytes) return &range;
  return nullptr;
}

void access(const void* pointer, size_t bytes, bool write, const void* place) {
  static bool busy = false;  // the linker may have kept instrumented copies of what is called here
  if (busy || !state.in_block || bytes == 0) return;
  busy = true;
  const size_t address = reinterpret_cast<size_t>(pointer);
  Range* const range = range_of(address);
  const char* fault = nullptr;
  const void* other = nullptr;
  if (range != nullptr) {
    const Fiber& f = state.fibers[size_t(state.current)];
    const Access now{state.block, state.current, f.barriers, f.warp_syncs, place};
    const size_t first = (address - range->start) / range->grain;
    const size_t last = (address + bytes - 1 - range->start) / range->grain;
    for (size_t i = first; i <= last && i < range->cells.size() && fault == nullptr; ++i) {
      Cell& c = range->cells[i];
      if (range == &shared && c.writer.block != now.block && c.reader.block != now.block)
        c = Cell{};
      fault = check(c, now, write, &other);
    }
  }
  busy = false;
  if (fault != nullptr) fail(report(fault, other, place));
}

}  // namespace

void watch(int slot, const void* memory, size_t bytes) {
  global[slot] = Range{reinterpret_cast<size_t>(memory), bytes, kGlobalGrain,
                       std::vector<Cell>(bytes / kGlobalGrain + 1)};
}

}  // namespace emu

#define EMU_ACCESS(n)                                                                     \
  void __tsan_read##n(void* p) { emu::access(p, n, false, __builtin_return_address(0)); } \
  void __tsan_write##n(void* p) { emu::access(p, n, true, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##n(void* p) {                                                \
    emu::access(p, n, false, __builtin_return_address(0));                                \
  }                                                                                       \
  void __tsan_unaligned_write##n(void* p) { emu::access(p, n, true, __builtin_return_address(0)); }

extern "C" {
EMU_ACCESS(1)
EMU_ACCESS(2)
EMU_ACCESS(4)
EMU_ACCESS(8)
EMU_ACCESS(16)
void __tsan_read_range(void* p, size_t n) { emu::access(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t n) { emu::access(p, n, true, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
}
#endif
