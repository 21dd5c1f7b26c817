// Prefetches the data that a worker reads and writes next, in small steps.
//
// The tokens of a head are far apart in memory, so that hardware prefetching fails. A burst of
// requests would wait for memory as much as the reads do, so a few are issued between two tiles of
// a product, in parallel with the arithmetic.
#pragma once

#include "window.h"

namespace nystra::NYSTRA_ISA {
namespace {

// The channels of one head in a packed map.
template <class T>
struct Head {
  const T *q = nullptr, *k = nullptr, *v = nullptr;

  Head() = default;
  Head(const WindowShape& s, const T* qkv, int64_t head)
      : q(qkv + head * s.head_dim),
        k(qkv + (s.heads + head) * s.head_dim),
        v(qkv + 2 * s.heads * s.head_dim + head * s.value_dim) {}
  template <class U>
  explicit Head(const Head<U>& of)
      : q(reinterpret_cast<const T*>(of.q)),
        k(reinterpret_cast<const T*>(of.k)),
        v(reinterpret_cast<const T*>(of.v)) {}
};

// Prefetches the cache lines of n elements.
template <bool kWrite, class T>
inline void prefetch(const T* p, int64_t n) {
  const uintptr_t last = reinterpret_cast<uintptr_t>(p + n);
  for (uintptr_t line = reinterpret_cast<uintptr_t>(p) / 64 * 64; line < last; line += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(line), kWrite, 2);
    asm volatile("");  // GCC drops calls of a function that only prefetches
  }
}

// Prefetches n channels of each of these tokens.
template <class T>
inline void prefetch_tokens(const T* map, int64_t stride, const int64_t* pixels, int64_t count,
                            int64_t n) {
  for (int64_t i = 0; i < count; ++i) prefetch<false>(map + pixels[i] * stride, n);
}

// Called between tiles while a task is worked on: prefetches a few tokens of its output and of the
// next task's input. It has no element type, so that what calls it is compiled once for all.
class Ahead {
 public:
  // Prefetches nothing.
  explicit Ahead(const WindowShape& s) : shape_(s), y_(s.window_h) {}

  template <class T>
  Ahead(const WindowShape& s, const T* qkv, T* out, int64_t task)
      : shape_(s),
        element_(sizeof(T)),
        place_(place(s, task / s.heads)),
        next_place_(place(s, (task + 1) / s.heads % s.windows())),
        next_(Head<T>(s, qkv, (task + 1) % s.heads)),
        out_(reinterpret_cast<char*>(out + task % s.heads * s.value_dim)) {}

  void operator()() {
    if (y_ == shape_.window_h) return;
    const WindowShape s = shape_;  // copies: compilers read memory again after each prefetch
    const Place current = place_, next = next_place_;
    const Head<char> from = next_;
    char* const out = out_;
    const int64_t d = s.head_dim * element_, e = s.value_dim * element_;
    const int64_t channels = s.channels() * element_, out_channels = s.heads * e;
    int64_t y = y_, x = x_;
    for (int i = 0; i < kTokens && y < s.window_h; ++i) {
      prefetch<true>(out + current.pixel(y, x) * out_channels, e);
      const int64_t token = next.pixel(y, x) * channels;
      prefetch<false>(from.q + token, d);
      prefetch<false>(from.k + token, d);
      prefetch<false>(from.v + token, e);
      if (++x == s.window_w) x = 0, ++y;
    }
    y_ = y;
    x_ = x;
  }

 private:
  static constexpr int kTokens = 6;  // the passes over 64 tokens have some 20 tiles

  const WindowShape& shape_;
  int64_t element_ = 0;
  Place place_ = {}, next_place_ = {};
  Head<char> next_;
  char* out_ = nullptr;
  int64_t y_ = 0, x_ = 0;
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
