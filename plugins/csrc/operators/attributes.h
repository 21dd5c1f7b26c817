// The attributes of one node: values that were checked against the schema.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "schema.h"

namespace nystra {

// Bad input; the message has the actual and the expected value. The caller adds the operator's
// name.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One value: `integer` of an INT, `number` of a FLOAT.
struct Value {
  int64_t integer;
  float number;
};

class Attributes {
 public:
  // Returns the value of an attribute, or throws if a node has none.
  using Read = std::function<Value(const Attribute&)>;

  // Reads all attributes, the revision first, since it explains why others may differ. Throws
  // Refusal if one is out of range, if they contradict each other, or if the revision is not the
  // one of this library.
  Attributes(const Schema& schema, const Read& read);

  int64_t integer(const char* name) const { return (*this)[name].integer; }
  float number(const char* name) const { return (*this)[name].number; }
  bool flag(const char* name) const { return integer(name) != 0; }

  const Value& operator[](const char* name) const;

 private:
  const Schema& schema_;
  std::vector<Value> values_;  // in the order of the schema
};

// Throws Refusal if no attribute of the schema has the name.
void check_known(const Schema& schema, const char* name);

}  // namespace nystra
