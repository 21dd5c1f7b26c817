// Sizes of exact attention, of a head, a task and a block of keys; and where its tokens are.
#pragma once

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

constexpr int64_t kQueries = 256, kKeys = 256;  // a task's queries, a block's keys

struct HeadSize {
  int64_t head_dim, value_dim;
  int64_t keys;
  float scale;
  float epsilon = 0;  // the least norm that tokens are divided by; 0: they are not
  float apart = 0;    // added between regions, in powers of two
};

// Token i of a head begins at data[places[i] * stride].
template <class T>
struct Tokens {
  T* data;
  int64_t stride;
  const int64_t* places;

  T* at(int64_t i) const { return data + places[i] * stride; }
};

inline int64_t chunks_of(int64_t queries) { return (queries + kQueries - 1) / kQueries; }

}  // namespace
}  // namespace nystra::NYSTRA_ISA
