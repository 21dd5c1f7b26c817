// A good node of each operator, and nodes that must be refused.
#pragma once

#include <string>
#include <vector>

#include "library.h"

namespace nystra::host {

using Shape = std::vector<int64_t>;

struct Example {
  std::string name;
  std::string inputs, outputs;  // a letter a tensor: T, or I for int32
  Fields fields;
  std::vector<Shape> shapes;               // of the inputs
  std::vector<std::vector<bool>> dynamic;  // sizes that a network may leave open
  std::vector<Shape> output_shapes;
};

// A node with some fields changed (`remove`: taken away) and words of its refusal.
struct BadFields {
  std::string name;
  Fields changes;
  std::vector<std::string> remove;
  std::string expected;
};

// A node with other input shapes and words of its refusal.
struct BadShapes {
  std::string name;
  std::vector<Shape> shapes;
  std::string expected;
};

const std::vector<Example>& examples();
const std::vector<BadFields>& bad_fields();
const std::vector<BadShapes>& bad_shapes();
const std::vector<BadShapes>& bad_largest();  // of a profile

const Example& example(const std::string& name);

}  // namespace nystra::host
