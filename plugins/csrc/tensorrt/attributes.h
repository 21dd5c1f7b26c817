// The attributes of a plugin, as TensorRT's fields.
#pragma once

#include <NvInferRuntime.h>

#include "operators/attributes.h"

namespace nystra::trt {

// Prints to stderr: TensorRT gives a plugin no logger whose layout all its versions share.
void print_error(const char* plugin, const char* layer, const char* text) noexcept;

// The values of all attributes of a schema: INT is kINT32, FLOAT kFLOAT32, one element each.
class Attributes {
 public:
  // Reads them from fields. Throws Refusal if one is missing, unknown, given twice, of another type
  // or out of range, or if the revision is not the one of this library.
  Attributes(const Schema& schema, const nvinfer1::PluginFieldCollection* fields);

  const nystra::Attributes& values() const { return values_; }

  // Fields that point into this object.
  std::vector<nvinfer1::PluginField> fields() const;

  // All values as text: equal text, equal plugin.
  std::string text() const;

 private:
  // In the form of a field.
  union Stored {
    int32_t integer;
    float number;
  };

  const Schema& schema_;
  nystra::Attributes values_;
  std::vector<Stored> stored_;  // in the order of the schema
};

}  // namespace nystra::trt
