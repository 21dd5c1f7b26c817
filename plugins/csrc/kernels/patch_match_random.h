// The random numbers of NystraPatchMatch: two entries of one table a draw.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define NYSTRA_ANYWHERE __host__ __device__
#else
#define NYSTRA_ANYWHERE
#endif

namespace nystra {
namespace {

constexpr uint32_t kRandomEntries = 4096;

// The table, each entry computed where it is read.
struct ComputedTable {
  NYSTRA_ANYWHERE constexpr uint32_t operator[](uint32_t i) const {
    uint32_t x = i % kRandomEntries * 2654435761u + 12345u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x >> 2;
  }
};

// Draw `number` of the pixel (y, x), below 2^30.
template <class Table>
NYSTRA_ANYWHERE inline int draw(const Table& table, uint32_t y, uint32_t x, uint32_t number,
                                uint32_t seed) {
  const uint32_t u = table[x + 619u * number + 811u * seed];
  return int((u + table[y + u]) & 0x3fffffffu);
}

}  // namespace
}  // namespace nystra
