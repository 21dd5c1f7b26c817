#include "attributes.h"

#include <cstdio>
#include <cstring>

namespace nystra::trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

constexpr int32_t kRevision = 1;

std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

// The field of an attribute; throws where it is missing, given twice or no single value.
const PluginField& find(const Attribute& attribute, const nvinfer1::PluginFieldCollection& fields) {
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
  const PluginFieldType type =
      attribute.integer ? PluginFieldType::kINT32 : PluginFieldType::kFLOAT32;
  if (found->type != type || found->length != 1 || found->data == nullptr)
    throw Refusal(owner + " is no single " +
                  (attribute.integer ? "INT (kINT32)" : "FLOAT (kFLOAT32)"));
  return *found;
}

void check_known(const AttributeTable& table, const PluginField& field) {
  if (field.name == nullptr) throw Refusal("a field without a name");
  std::string names;
  for (const Attribute& attribute : table) {
    if (std::strcmp(field.name, attribute.name) == 0) return;
    names += (names.empty() ? "" : ", ") + std::string(attribute.name);
  }
  throw Refusal(std::string("unknown attribute ") + field.name + "; expected " + names);
}

}  // namespace

void say(const char* plugin, const char* layer, const char* text) noexcept {
  const bool named = layer != nullptr && *layer != '\0';
  std::fprintf(stderr, "nystra: %s%s%s%s: %s\n", plugin, named ? " (" : "", named ? layer : "",
               named ? ")" : "", text);
}

AttributeTable with_revision(AttributeTable table) {
  table.push_back(integer_attribute("revision", kRevision, kRevision));
  return table;
}

Attributes::Attributes(const AttributeTable& table, const nvinfer1::PluginFieldCollection* fields) {
  if (fields == nullptr || (fields->nbFields > 0 && fields->fields == nullptr))
    throw Refusal("no fields were given");
  int32_t revision = 0;
  std::memcpy(&revision, find(table.back(), *fields).data, sizeof revision);
  if (revision != kRevision)
    throw Refusal("the node is of revision " + std::to_string(revision) +
                  ", this library of nystra " + NYSTRA_VERSION + " knows revision " +
                  std::to_string(kRevision) +
                  "; use the library of the nystra that exported the model, or one as new as it");
  for (int32_t i = 0; i < fields->nbFields; ++i) check_known(table, fields->fields[i]);
  for (const Attribute& attribute : table) {
    Value value{attribute, 0, 0.0f};
    const void* const data = find(attribute, *fields).data;
    std::memcpy(attribute.integer ? static_cast<void*>(&value.integer) : &value.number, data, 4);
    const double got = attribute.integer ? value.integer : value.number;
    if (!(got >= attribute.minimum && got <= attribute.maximum))
      throw Refusal(std::string("attribute ") + attribute.name + " is " + number_text(got) +
                    "; expected " + number_text(attribute.minimum) + " to " +
                    number_text(attribute.maximum));
    values_.push_back(value);
  }
}

std::vector<PluginField> Attributes::fields() const {
  std::vector<PluginField> result;
  for (const Value& v : values_) {
    if (v.attribute.integer) {
      result.emplace_back(v.attribute.name, &v.integer, PluginFieldType::kINT32, 1);
    } else {
      result.emplace_back(v.attribute.name, &v.number, PluginFieldType::kFLOAT32, 1);
    }
  }
  return result;
}

std::string Attributes::text() const {
  std::string result;
  for (const Value& v : values_)
    result += (result.empty() ? "" : " ") + std::string(v.attribute.name) + "=" +
              number_text(v.attribute.integer ? double(v.integer) : double(v.number));
  return result;
}

const Attributes::Value& Attributes::value(const char* name) const {
  for (const Value& v : values_)
    if (std::strcmp(v.attribute.name, name) == 0) return v;
  throw std::logic_error(std::string("no attribute ") + name);
}

}  // namespace nystra::trt
