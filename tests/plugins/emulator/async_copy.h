// The host twin of cp.async: copies from memory into shared memory that a thread begins and waits
// for later.
//
// A copy is a queue's entry: what it will write is NaN from its beginning until its thread has
// waited for it, the worst that a device may show, so that a missing wait is a wrong result. The
// race detector sees both as writes of that thread; a barrier hands the copy to the others.
#pragma once

#include "block.h"

namespace emu {

// Whole words, so that the race detector sees them.
__forceinline__ void write_word(unsigned char* to, uint32_t word) {
  *reinterpret_cast<uint32_t*>(to) = word;
}

// cp.async of 4, 8 or 16 bytes, of which the first source_bytes are read and the others are zeros.
__forceinline__ void begin_copy(void* to, const void* from, int bytes, int source_bytes,
                                const char* file, int line) {
  Fiber& self = state.fibers[size_t(state.current)];
  unsigned char* const target = static_cast<unsigned char*>(to);
  const size_t offset = size_t(target - state.dynamic_shared);
  if (bytes != 4 && bytes != 8 && bytes != 16)
    fail("an asynchronous copy is of 4, 8 or 16 bytes: " + place(file, line));
  if (source_bytes < 0 || source_bytes > bytes)
    fail("an asynchronous copy reads more than it writes: " + place(file, line));
  if (offset >= state.memory_bytes || offset + size_t(bytes) > state.memory_bytes)
    fail("an asynchronous copy writes to other than shared memory: " + place(file, line));
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % uintptr_t(bytes) != 0)
    fail("an asynchronous copy is not aligned to its size: " + place(file, line));
  for (int i = 0; i < bytes; i += 4) write_word(target + i, 0xffffffffu);
  self.copies.push_back(
      {target, static_cast<const unsigned char*>(from), bytes, source_bytes, self.copy_groups});
}

// cp.async.commit_group: the copies since the last one are a group.
inline void commit_copies() { ++state.fibers[size_t(state.current)].copy_groups; }

// cp.async.wait_group: until at most `groups` of this thread's groups are under way.
__forceinline__ void wait_for_copies(int groups) {
  Fiber& self = state.fibers[size_t(state.current)];
  std::vector<Copy> left;
  for (const Copy& copy : self.copies) {
    if (copy.group >= self.copy_groups - groups) {
      left.push_back(copy);
      continue;
    }
    for (int i = 0; i < copy.bytes; i += 4) {
      unsigned char bytes[4] = {};
      for (int j = 0; j < 4; ++j)
        if (i + j < copy.source_bytes) bytes[j] = copy.from[i + j];
      uint32_t word;
      std::memcpy(&word, bytes, sizeof word);
      write_word(copy.to + i, word);
    }
  }
  self.copies = std::move(left);
}

}  // namespace emu
