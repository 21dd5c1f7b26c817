// The random numbers of NystraPatchMatch: two entries of a table of 4096 a draw, each computed.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define NYSTRA_ANYWHERE __host__ __device__
#else
#define NYSTRA_ANYWHERE
#endif

namespace nystra {
namespace {

// Entry i of the table.
NYSTRA_ANYWHERE inline uint32_t random_entry(uint32_t i) {
  uint32_t x = i % 4096u * 2654435761u + 12345u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x >> 2;
}

// Draw `number` of the pixel (y, x), below 2^30.
NYSTRA_ANYWHERE inline int draw(uint32_t y, uint32_t x, uint32_t number, uint32_t seed) {
  const uint32_t u = random_entry(x + 619u * number + 811u * seed);
  return int((u + random_entry(y + u)) & 0x3fffffffu);
}

}  // namespace
}  // namespace nystra
