// The shape of a tensor, and its checks by operators.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace nystra {

constexpr int kMaxRank = 8;

// A size of -1 is not known yet.
struct Shape {
  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    for (const int64_t size : list) sizes[rank++] = size;
  }

  int64_t& operator[](int axis) { return sizes[axis]; }
  int64_t operator[](int axis) const { return sizes[axis]; }
  bool empty() const;

  int rank = 0;
  int64_t sizes[kMaxRank] = {};
};

bool operator==(const Shape& a, const Shape& b);

std::string text(const Shape& shape);

// Whether sizes are equal, or one of them is not known yet.
bool agree(int64_t a, int64_t b);
bool agree(const Shape& a, const Shape& b);

// Throws Refusal if input `name` does not broadcast to `full`.
void check_broadcast(const char* name, const Shape& shape, const Shape& full);

// The step in elements from one place to the next along an axis; 0 where the tensor is broadcast.
int64_t step(const Shape& shape, int axis);

}  // namespace nystra
