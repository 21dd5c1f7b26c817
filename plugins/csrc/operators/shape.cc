#include "shape.h"

#include "attributes.h"

namespace nystra {

bool Shape::empty() const {
  for (int axis = 0; axis < rank; ++axis)
    if (sizes[axis] == 0) return true;
  return false;
}

bool operator==(const Shape& a, const Shape& b) {
  bool equal = a.rank == b.rank;
  for (int axis = 0; equal && axis < a.rank; ++axis) equal = a[axis] == b[axis];
  return equal;
}

std::string text(const Shape& shape) {
  std::string result = "(";
  for (int axis = 0; axis < shape.rank; ++axis)
    result += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  return result + ")";
}

bool agree(int64_t a, int64_t b) { return a == -1 || b == -1 || a == b; }

bool agree(const Shape& a, const Shape& b) {
  bool fits = a.rank == b.rank;
  for (int axis = 0; fits && axis < a.rank; ++axis) fits = agree(a[axis], b[axis]);
  return fits;
}

void check_broadcast(const char* name, const Shape& shape, const Shape& full) {
  Shape widened = shape;
  for (int axis = 0; axis < shape.rank && axis < full.rank; ++axis)
    if (shape[axis] == 1) widened[axis] = full[axis];
  if (!agree(widened, full))
    throw Refusal(std::string("input ") + name + " is " + text(shape) + "; expected " + text(full) +
                  ", or 1 for any of its sizes");
}

int64_t step(const Shape& shape, int axis) {
  if (shape[axis] == 1) return 0;
  int64_t result = 1;
  for (int i = axis + 1; i < shape.rank; ++i) result *= shape[i];
  return result;
}

}  // namespace nystra
