// The maxima of the pseudoinverse's start value over a whole batch, on the CPU.
#pragma once

namespace nystra {

// Maxima of row and column sums of abs A over a whole batch; negative: use those of each matrix.
struct BatchMaxima {
  float row, column;
};

constexpr BatchMaxima kOwnMaxima = {-1.0f, -1.0f};

// Merges maxima; NaN stays NaN.
static inline void merge(const BatchMaxima& from, BatchMaxima* into) {
  const auto larger = [](float a, float b) { return b > a || b != b ? b : a; };
  into->row = larger(into->row, from.row);
  into->column = larger(into->column, from.column);
}

}  // namespace nystra
