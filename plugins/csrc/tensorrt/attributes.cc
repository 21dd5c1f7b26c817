#include "attributes.h"

#include <cstdio>
#include <cstring>

namespace nystra::trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;

PluginFieldType field_type(const Attribute& attribute) {
  return attribute.integer ? PluginFieldType::kINT32 : PluginFieldType::kFLOAT32;
}

// The value of an attribute; throws if it is missing, given twice or not a single value.
Value read(const Attribute& attribute, const PluginFieldCollection& fields) {
  const std::string owner = std::string("attribute ") + attribute.name;
  const PluginField* found = nullptr;
  for (int32_t i = 0; i < fields.nbFields; ++i) {
    const PluginField& field = fields.fields[i];
    if (field.name == nullptr || std::strcmp(field.name, attribute.name) != 0) continue;
    if (found != nullptr) throw Refusal(owner + " is given twice");
    found = &field;
  }
  if (found == nullptr)
    throw Refusal(owner + " is missing; every node of nystra carries all its attributes");
  if (found->type != field_type(attribute) || found->length != 1 || found->data == nullptr)
    throw Refusal(owner + " is not a single " +
                  (attribute.integer ? "INT (kINT32)" : "FLOAT (kFLOAT32)"));
  int32_t integer = 0;
  float number = 0.0f;
  std::memcpy(attribute.integer ? static_cast<void*>(&integer) : &number, found->data, 4);
  return {integer, number};
}

// Reads all of them, and refuses fields that the schema does not have.
nystra::Attributes read_all(const Schema& schema, const PluginFieldCollection* fields) {
  if (fields == nullptr || (fields->nbFields > 0 && fields->fields == nullptr))
    throw Refusal("got no fields, expected the attributes");
  nystra::Attributes values(schema, [&](const Attribute& a) { return read(a, *fields); });
  for (int32_t i = 0; i < fields->nbFields; ++i) {
    if (fields->fields[i].name == nullptr) throw Refusal("a field without a name");
    check_known(schema, fields->fields[i].name);
  }
  return values;
}

}  // namespace

void print_error(const char* plugin, const char* layer, const char* text) noexcept {
  const bool named = layer != nullptr && *layer != '\0';
  std::fprintf(stderr, "nystra: %s%s%s%s: %s\n", plugin, named ? " (" : "", named ? layer : "",
               named ? ")" : "", text);
}

Attributes::Attributes(const Schema& schema, const PluginFieldCollection* fields)
    : schema_(schema), values_(read_all(schema, fields)) {
  for (const Attribute& attribute : schema) {
    const Value& value = values_[attribute.name];
    Stored stored;
    if (attribute.integer)
      stored.integer = int32_t(value.integer);
    else
      stored.number = value.number;
    stored_.push_back(stored);
  }
}

std::vector<PluginField> Attributes::fields() const {
  std::vector<PluginField> result;
  for (size_t i = 0; i < schema_.count; ++i) {
    const Attribute& attribute = schema_.attributes[i];
    result.emplace_back(attribute.name, &stored_[i], field_type(attribute), 1);
  }
  return result;
}

std::string Attributes::text() const {
  std::string result;
  for (size_t i = 0; i < schema_.count; ++i) {
    const Attribute& attribute = schema_.attributes[i];
    char number[32];
    std::snprintf(number, sizeof number, "%.9g",
                  attribute.integer ? double(stored_[i].integer) : double(stored_[i].number));
    result += (i == 0 ? "" : " ") + std::string(attribute.name) + "=" + number;
  }
  return result;
}

}  // namespace nystra::trt
