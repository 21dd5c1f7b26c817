// The sum over a patch of squared differences or of products, for one candidate after the other.
//
// With squares a sum stops where it exceeds the worst entry of the pixel's row. That never changes
// the result: partial sums of squares only grow, in every lane and in floating point too. While one
// patch is summed, the patch of the next pixel at the same position of its list is prefetched: the
// keys of a pixel are far apart, and those at equal positions are dropped similarly early.
#pragma once

#include "patch_match_maps.h"

namespace nystra::NYSTRA_ISA {
namespace {

// How the row of a patch is cut into vectors.
struct PatchRow {
  int64_t patch;    // rows
  int64_t vectors;  // of a row
  int64_t lines;    // cache lines of a row
  IntVec tail;      // the lanes of the last vector that belong to the row

  PatchRow(const PatchMatchParams& p) : patch(p.patch) {
    const int64_t floats = p.patch * p.channels;
    vectors = (floats + kLanes - 1) / kLanes;
    lines = (floats * 4 + 63) / 64;
    for (int i = 0; i < kLanes; ++i) tail[i] = i < floats - (vectors - 1) * kLanes ? -1 : 0;
  }
};

struct Patch {
  const float* corner;  // upper left
  int64_t step;         // floats from row to row
};

constexpr int kSums = 4;  // independent sums, added at the end

// Adds `count` vectors of a row to the sums, only the lanes `kept` of the last one.
template <bool squares, int count, bool cut>
inline void add_vectors(const float* q, const float* k, IntVec kept, Vec (&sums)[kSums]) {
  for (int i = 0; i < count; ++i) {
    Vec a = load(q + i * kLanes), b = load(k + i * kLanes);
    if (cut && i == count - 1) a = (Vec)((IntVec)a & kept), b = (Vec)((IntVec)b & kept);
    if (squares) a -= b;
    sums[i % kSums] = squares ? fma(a, a, sums[i % kSums]) : fma(a, b, sums[i % kSums]);
  }
}

// A row of `vectors` vectors, or of any number where that is 0.
template <bool squares, int vectors, bool cut>
inline void add_row(const PatchRow& row, const float* q, const float* k, Vec (&sums)[kSums]) {
  if (vectors > 0) return add_vectors<squares, vectors, cut>(q, k, row.tail, sums);
  int64_t i = 0;
  for (; i + kSums < row.vectors; i += kSums)
    add_vectors<squares, kSums, false>(q + i * kLanes, k + i * kLanes, row.tail, sums);
  for (; i + 1 < row.vectors; ++i)
    add_vectors<squares, 1, false>(q + i * kLanes, k + i * kLanes, row.tail, sums);
  if (i < row.vectors)
    add_vectors<squares, 1, true>(q + i * kLanes, k + i * kLanes, row.tail, sums);
}

// The sum over a patch; with squares, anything above `bound` where the sum is above it. `next` is
// the corner of a patch of the key map that will be wanted soon.
template <bool squares, int vectors, bool cut>
float sum_patch(const PatchRow& row, Patch query, Patch key, float bound, const float* next) {
  constexpr int64_t kBetween = 6;  // vectors from one look at the sum to the next
  constexpr int64_t kRows = vectors == 0 ? 1 : (kBetween + vectors - 1) / vectors;
  const int64_t lines = vectors == 0 ? row.lines : (vectors * kLanes + 15) / 16;
  Vec sums[kSums] = {};
  float total = 0;
  for (int64_t i = 0; i < row.patch;) {
    const int64_t end = i + kRows < row.patch ? i + kRows : row.patch;
    for (; i < end; ++i) {
      add_row<squares, vectors, cut>(row, query.corner + i * query.step, key.corner + i * key.step,
                                     sums);
      for (int64_t line = 0; line < lines; ++line)
        __builtin_prefetch(next + i * key.step + line * 16, 0, 2);
    }
    if (squares || i == row.patch) {
      total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
      if (squares && total > bound) break;
    }
  }
  return total;
}

using SumPatch = float (*)(const PatchRow&, Patch query, Patch key, float bound, const float* next);

template <bool squares, bool cut>
SumPatch choose_sum(int64_t vectors) {
  switch (vectors) {
    case 1: return sum_patch<squares, 1, cut>;
    case 2: return sum_patch<squares, 2, cut>;
    case 3: return sum_patch<squares, 3, cut>;
    case 4: return sum_patch<squares, 4, cut>;
    case 5: return sum_patch<squares, 5, cut>;
    case 6: return sum_patch<squares, 6, cut>;
    case 7: return sum_patch<squares, 7, cut>;
    case 8: return sum_patch<squares, 8, cut>;
    default: return sum_patch<squares, 0, true>;
  }
}

inline SumPatch choose_sum(const PatchMatchParams& p, bool squares) {
  const bool cut = p.patch * p.channels % kLanes != 0;
  const int64_t vectors = PatchRow(p).vectors;
  if (squares) return cut ? choose_sum<true, true>(vectors) : choose_sum<true, false>(vectors);
  return cut ? choose_sum<false, true>(vectors) : choose_sum<false, false>(vectors);
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
