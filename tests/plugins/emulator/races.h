// The memory that the race detector watches besides shared memory; nothing in the other builds.
#pragma once

#include <cstddef>

namespace emu {

// Watches memory that all blocks can reach, until the next call with the same slot (0 to 2).
void watch(int slot, const void* memory, size_t bytes);

}  // namespace emu
