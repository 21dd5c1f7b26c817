// The host twins of the tensor-core instructions that the kernels use. The lanes hold the matrices
// as the PTX manual says (Matrix Fragments for mma); group = lane / 4, in = lane % 4.
//
// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: D = A B + C of a 16 x 8 by an 8 x 8 matrix.
//   A: a0 (group, in), a1 (group + 8, in), a2 (group, in + 4), a3 (group + 8, in + 4)
//   B: b0 (in, group), b1 (in + 4, group)
//   C, D: c0 (group, 2 in), c1 (group, 2 in + 1), c2 (group + 8, 2 in), c3 (group + 8, 2 in + 1)
// mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16,bf16.bf16}.f32: of a 16 x 16 by a 16 x 8 matrix of
// 16 bits an entry, two in a word, the first in its lower half. Two entries that differ in the
// column of A, or in the row of B:
//   A: a0 (group, 2 in ...), a1 (group + 8, 2 in ...), a2 (group, 2 in + 8 ...), a3 (group + 8, 2
//   in
//      + 8 ...)
//   B: b0 (2 in ..., group), b1 (2 in + 8 ..., group)
//   C, D: as above
// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: four 8 x 8 matrices of 16 bits an entry. Lane l
// gives the address of row l % 8 of matrix l / 8; word n of a lane is (group, 2 in ...) of matrix
// n, with .trans (2 in, group) and (2 in + 1, group).
#pragma once

#include "block.h"

namespace emu {

struct Multiplication : Together {
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

// The lanes' arguments of one operation.
template <class Arguments>
class Lanes {
 public:
  explicit Lanes(const std::array<uint64_t, kWarp>& values) : values_(values) {}
  Arguments& operator()(int lane) const {
    return *static_cast<Arguments*>(reinterpret_cast<Together*>(values_[size_t(lane)]));
  }

 private:
  const std::array<uint64_t, kWarp>& values_;
};

// sums += a b of 16 x kInner by kInner x 8.
template <int kInner, class Arguments>
__attribute__((no_sanitize("thread"))) void add_product(const Lanes<Arguments>& of,
                                                        const double (&a)[16][kInner],
                                                        const double (&b)[kInner][8]) {
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = of(lane).sums[i];
      for (int k = 0; k < kInner; ++k) sum += a[row][k] * b[k][column];
      of(lane).sums[i] = cut_off(sum);
    }
}

__attribute__((no_sanitize("thread"))) inline void multiply_tf32(
    const std::array<uint64_t, kWarp>& values) {
  double a[16][8], b[8][8];
  const Lanes<Multiplication> of(values);
  for (int lane = 0; lane < kWarp; ++lane) {
    const int group = lane / 4, in = lane % 4;
    for (int i = 0; i < 4; ++i) a[group + i % 2 * 8][in + i / 2 * 4] = tf32(of(lane).a[i]);
    for (int i = 0; i < 2; ++i) b[in + i * 4][group] = tf32(of(lane).b[i]);
  }
  add_product<8>(of, a, b);
}

// The entry of 16 bits, 0 or 1, in a word.
template <class T>
double entry_of_word(uint32_t word, int which) {
  const uint16_t bits = static_cast<uint16_t>(which ? word >> 16 : word);
  T entry;
  std::memcpy(&entry, &bits, sizeof entry);
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(entry);
  else
    return __bfloat162float(entry);
}

template <class T>
__attribute__((no_sanitize("thread"))) void multiply_16(const std::array<uint64_t, kWarp>& values) {
  double a[16][16], b[16][8];
  const Lanes<Multiplication> of(values);
  for (int lane = 0; lane < kWarp; ++lane) {
    const int group = lane / 4, in = lane % 4;
    for (int n = 0; n < 2; ++n) {
      for (int i = 0; i < 4; ++i)
        a[group + i % 2 * 8][2 * in + i / 2 * 8 + n] = entry_of_word<T>(of(lane).a[i], n);
      for (int i = 0; i < 2; ++i) b[2 * in + i * 8 + n][group] = entry_of_word<T>(of(lane).b[i], n);
    }
  }
  add_product<16>(of, a, b);
}

// sums += A B in tf32, by all lanes of a warp.
inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         const char* file, int line) {
  Multiplication mine{{multiply_tf32}, sums, a, b};
  warp_operation(WarpOp::kTogether, ~0u, reinterpret_cast<uint64_t>(&mine), 0, kWarp, file, line);
}

// The same of T, half or bfloat16.
template <class T>
void multiply_add_16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                     const char* file, int line) {
  Multiplication mine{{multiply_16<T>}, sums, a, b};
  warp_operation(WarpOp::kTogether, ~0u, reinterpret_cast<uint64_t>(&mine), 0, kWarp, file, line);
}

struct MatrixLoad : Together {
  uint32_t row[4];
  uint32_t (&words)[4];
};

template <bool kTransposed>
__attribute__((no_sanitize("thread"))) void deal_rows(const std::array<uint64_t, kWarp>& values) {
  const Lanes<MatrixLoad> of(values);
  const auto entry = [&](int matrix, int row, int column) {
    return of(8 * matrix + row).row[column / 2] >> (column % 2 * 16) & 0xffffu;
  };
  for (int lane = 0; lane < kWarp; ++lane)
    for (int n = 0; n < 4; ++n) {
      const int group = lane / 4, in = lane % 4;
      of(lane).words[n] = kTransposed ? entry(n, 2 * in, group) | entry(n, 2 * in + 1, group) << 16
                                      : entry(n, group, 2 * in) | entry(n, group, 2 * in + 1) << 16;
    }
}

// The lane reads the row that it gives the address of.
template <bool kTransposed>
__forceinline__ void load_matrices(uint32_t (&words)[4], const void* row, const char* file,
                                   int line) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    fail("a row of ldmatrix is not aligned to 16 bytes: " + place(file, line));
  MatrixLoad mine{{deal_rows<kTransposed>}, {}, words};
  for (int i = 0; i < 4; ++i) mine.row[i] = static_cast<const uint32_t*>(row)[i];
  warp_operation(WarpOp::kTogether, ~0u, reinterpret_cast<uint64_t>(&mine), 0, kWarp, file, line);
}

}  // namespace emu
