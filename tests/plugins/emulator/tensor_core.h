// The host twin of the tensor-core instruction that the kernels use.
//
// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: D = A B + C of a 16 x 8 by an 8 x 8 matrix.
// The lanes hold the matrices as the PTX manual says (Matrix Fragments for mma.m16n8k8, .tf32);
// group = lane / 4, in = lane % 4:
//   A: a0 (group, in), a1 (group + 8, in), a2 (group, in + 4), a3 (group + 8, in + 4)
//   B: b0 (in, group), b1 (in + 4, group)
//   C, D: c0 (group, 2 in), c1 (group, 2 in + 1), c2 (group + 8, 2 in), c3 (group + 8, 2 in + 1)
#pragma once

#include "block.h"

namespace emu {

struct Multiplication {
  float (&sums)[4];
  const uint32_t (&a)[4];
  const uint32_t (&b)[2];
};

// What a device does with the bits that tf32 does not have is not promised: a kernel gives none.
inline double tf32(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  if ((bits & 0x1fffu) != 0 && value == value && state.error.empty())
    state.error = "an operand of a tensor core has bits that tf32 does not have";
  return value;
}

// Rounds towards zero: a device keeps no more bits of a sum than float has, and may cut them off.
inline float cut_off(double sum) {
  float rounded = static_cast<float>(sum);
  if (std::fabs(double(rounded)) > std::fabs(sum)) rounded = std::nextafterf(rounded, 0.0f);
  return rounded;
}

__attribute__((no_sanitize("thread"))) inline void multiply(
    const std::array<uint64_t, kWarp>& lanes) {
  double a[16][8], b[8][8];
  const auto of = [&](int lane) { return reinterpret_cast<Multiplication*>(lanes[size_t(lane)]); };
  for (int lane = 0; lane < kWarp; ++lane) {
    const int group = lane / 4, in = lane % 4;
    for (int i = 0; i < 4; ++i) a[group + i % 2 * 8][in + i / 2 * 4] = tf32(of(lane)->a[i]);
    for (int i = 0; i < 2; ++i) b[in + i * 4][group] = tf32(of(lane)->b[i]);
  }
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = of(lane)->sums[i];
      for (int k = 0; k < 8; ++k) sum += a[row][k] * b[k][column];
      of(lane)->sums[i] = cut_off(sum);
    }
}

// sums += A B, by all lanes of a warp.
inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         const char* file, int line) {
  Multiplication mine{sums, a, b};
  warp_operation(WarpOp::kMultiply, ~0u, reinterpret_cast<uint64_t>(&mine), 0, kWarp, file, line);
}

}  // namespace emu
