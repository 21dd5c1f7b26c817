// The attributes of a plugin: a table of names, types and ranges, and values checked against it.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace nystra::trt {

// Bad input; the message says what was got and expected. The plugin's name is added outside.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Prints to stderr: TensorRT gives a plugin no logger whose layout all its versions share.
void say(const char* plugin, const char* layer, const char* text) noexcept;

// One attribute: INT (kINT32) or FLOAT (kFLOAT32), one element.
struct Attribute {
  const char* name;
  bool integer;
  double minimum, maximum;
};

inline Attribute integer_attribute(const char* name, int32_t minimum, int32_t maximum) {
  return {name, true, double(minimum), double(maximum)};
}

inline Attribute number_attribute(const char* name, double minimum, double maximum) {
  return {name, false, minimum, maximum};
}

using AttributeTable = std::vector<Attribute>;

// The table of an operator: its own attributes, then `revision`.
AttributeTable with_revision(AttributeTable table);

// The values of all attributes of a table.
class Attributes {
 public:
  // Reads them from fields. Throws Refusal where one is missing, unknown, given twice, of another
  // type or out of range, and where the revision is not the one this library knows.
  Attributes(const AttributeTable& table, const nvinfer1::PluginFieldCollection* fields);

  int64_t integer(const char* name) const { return value(name).integer; }
  float number(const char* name) const { return value(name).number; }

  // Fields that point into this object.
  std::vector<nvinfer1::PluginField> fields() const;

  // All values as text: equal text, equal plugin.
  std::string text() const;

 private:
  struct Value {
    Attribute attribute;
    int32_t integer;
    float number;
  };

  const Value& value(const char* name) const;

  std::vector<Value> values_;
};

}  // namespace nystra::trt
