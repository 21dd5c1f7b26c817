#include <cstdio>
#include <set>

#include "checks.h"

namespace nystra::host {

void Report::check(bool holds, const std::string& what) {
  ++checks_;
  if (holds) return;
  ++failures_;
  std::printf("FAILED: %s\n", what.c_str());
}

void check_creator(nvinfer1::IPluginCreatorV3One& creator, const Example& example, Report& report) {
  const std::string name = example.name;
  report.check(std::string(creator.getPluginVersion()) == "1",
               name + ": the creator's version is 1");
  report.check(std::string(creator.getPluginNamespace()).empty(),
               name + ": the creator's namespace is empty");

  std::set<std::string> known, expected;
  const nvinfer1::PluginFieldCollection& fields = *creator.getFieldNames();
  for (int32_t i = 0; i < fields.nbFields; ++i) known.insert(fields.fields[i].name);
  for (const auto& [field, value] : example.fields) expected.insert(field);
  report.check(known == expected && int32_t(known.size()) == fields.nbFields,
               name + ": getFieldNames lists the fields");

  for (const auto phase : {nvinfer1::TensorRTPhase::kBUILD, nvinfer1::TensorRTPhase::kRUNTIME})
    report.check(create(creator, example.fields, phase) != nullptr,
                 name + ": a good node is created in either phase");

  bool null_is_refused = false;
  words([&] {
    null_is_refused = creator.createPlugin("", nullptr, nvinfer1::TensorRTPhase::kBUILD) == nullptr;
  });
  report.check(null_is_refused, name + ": no field collection is refused");

  for (const BadFields& row : bad_fields()) {
    if (row.name != name) continue;
    Fields bad = example.fields;
    for (const auto& [field, value] : row.changes) bad[field] = value;
    for (const std::string& field : row.remove) bad.erase(field);
    bool refused = false;
    const std::string printed = words([&] { refused = create(creator, bad) == nullptr; });
    report.check(refused, name + ": refuses what gives \"" + row.expected + "\"");
    report.check(printed.find(name + " (layer): ") != std::string::npos &&
                     printed.find(row.expected) != std::string::npos,
                 name + ": says \"" + row.expected + "\"; it printed: " + printed);
  }
}

}  // namespace nystra::host
