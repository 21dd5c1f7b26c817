// What a plugin must do before it meets a device.
#pragma once

#include "examples.h"

namespace nystra::host {

// Counts what holds and prints what does not.
class Report {
 public:
  void check(bool holds, const std::string& what);
  int failures() const { return failures_; }
  int checks() const { return checks_; }

 private:
  int checks_ = 0, failures_ = 0;
};

// The creator itself, and that it refuses bad fields with these words.
void check_creator(nvinfer1::IPluginCreatorV3One& creator, const Example& example, Report& report);

// Types, formats and symbolic shapes, as a builder asks for them.
void check_build(nvinfer1::IPluginCreatorV3One& creator, const Example& example, Report& report);

// Serialization, clones and their lives.
void check_lives(nvinfer1::IPluginCreatorV3One& creator, const Example& example, Report& report);

// Changes of shape at run time, and that enqueue fails cleanly where there is no device.
void check_runtime(nvinfer1::IPluginCreatorV3One& creator, const Example& example, bool device,
                   Report& report);

}  // namespace nystra::host
