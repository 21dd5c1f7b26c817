// The random numbers of NystraPatchMatch: one table for all seeds, read twice per draw.
#pragma once

#include <cstdint>

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

struct RandomTable {
  static constexpr uint32_t kSize = 4096;
  uint32_t entries[kSize];

  constexpr RandomTable() : entries() {
    for (uint32_t i = 0; i < kSize; ++i) {
      uint32_t x = i * 2654435761u + 12345u;
      x ^= x >> 16;
      x *= 0x7feb352du;
      x ^= x >> 15;
      x *= 0x846ca68bu;
      x ^= x >> 16;
      entries[i] = x >> 2;
    }
  }

  constexpr uint32_t operator[](uint32_t i) const { return entries[i % kSize]; }
};

constexpr RandomTable kRandom;

// Draw `number` of the pixel (y, x), below 2^30.
inline uint32_t draw(int64_t y, int64_t x, int64_t number, int64_t seed) {
  const uint32_t u = kRandom[uint32_t(x) + 619u * uint32_t(number) + 811u * uint32_t(seed)];
  const uint32_t v = kRandom[uint32_t(y) + u];
  return (u + v) & 0x3fffffffu;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
