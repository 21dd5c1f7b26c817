#include "attributes.h"

#include <cstdio>
#include <cstring>

namespace nystra {
namespace {

std::string text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

void check_range(const Attribute& attribute, const Value& value) {
  const double got = attribute.integer ? double(value.integer) : double(value.number);
  if (got >= attribute.minimum && got <= attribute.maximum) return;
  throw Refusal(std::string("attribute ") + attribute.name + " is " +
                (attribute.integer ? std::to_string(value.integer) : text(got)) + "; expected " +
                text(attribute.minimum) + " to " + text(attribute.maximum));
}

void check_revision(const Attribute& revision, int64_t got) {
  const int64_t known = int64_t(revision.maximum);
  if (got == known) return;
  throw Refusal("the node has revision " + std::to_string(got) + ", this library of nystra " +
                NYSTRA_VERSION + " supports revision " + std::to_string(known) +
                "; use the library of the nystra version that exported the model, or a newer one");
}

}  // namespace

Attributes::Attributes(const Schema& schema, const Read& read) : schema_(schema) {
  const Attribute& revision = schema.attributes[schema.count - 1];
  const Value known = read(revision);
  check_revision(revision, known.integer);
  for (const Attribute& attribute : schema) {
    values_.push_back(&attribute == &revision ? known : read(attribute));
    check_range(attribute, values_.back());
  }
  if (schema.relations != nullptr) schema.relations(*this);
}

const Value& Attributes::operator[](const char* name) const {
  for (size_t i = 0; i < schema_.count; ++i)
    if (std::strcmp(schema_.attributes[i].name, name) == 0) return values_[i];
  throw std::logic_error(std::string(schema_.name) + " has no attribute " + name);
}

void check_known(const Schema& schema, const char* name) {
  std::string names;
  for (const Attribute& attribute : schema) {
    if (std::strcmp(name, attribute.name) == 0) return;
    names += (names.empty() ? "" : ", ") + std::string(attribute.name);
  }
  throw Refusal(std::string("unknown attribute ") + name + "; expected " + names);
}

}  // namespace nystra
