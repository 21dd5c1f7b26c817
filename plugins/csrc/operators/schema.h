// The schema of an operator: names, types and limits. table.h has those of all operators.
#pragma once

#include <cmath>
#include <cstddef>

namespace nystra {

// The default of a required attribute.
constexpr double kNoDefault = NAN;

struct Attribute {
  const char* name;
  bool integer;  // INT, else FLOAT
  double minimum, maximum;
  double fallback;  // what a caller may leave out; a node carries it always
};

class Attributes;

struct Schema {
  const char* name;     // the node type
  const char* inputs;   // a letter a tensor: T (float, half or bfloat16, all alike) or I (int32)
  const char* outputs;  // the same
  const Attribute* attributes;
  size_t count;                          // of attributes; the last is the revision
  void (*relations)(const Attributes&);  // throws Refusal where they do not fit together; or null

  const Attribute* begin() const { return attributes; }
  const Attribute* end() const { return attributes + count; }
};

}  // namespace nystra
