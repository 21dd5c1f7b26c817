// The cases of a run on a device, as cases.txt in a folder names them.
#pragma once

#include <NvInferRuntime.h>

#include <optional>
#include <string>
#include <vector>

#include "library.h"

namespace nystra::host {

// A case is
//
//   case NAME OPERATOR float32|float16|bfloat16
//   int NAME VALUE        float NAME VALUE
//   in T|I SIZES...       (bytes in NAME.in0, NAME.in1, ...; none are read where times are taken)
//   fill NUMBER           (where times are taken: the input before holds this, not random numbers)
//   out T|I SIZES...      (written to NAME.out0, ...)
//   end
struct Case {
  std::string name, op;
  nvinfer1::DataType type = nvinfer1::DataType::kFLOAT;
  Fields fields;
  std::vector<nvinfer1::PluginTensorDesc> in, out;
  std::vector<std::optional<float>> fill;  // of the inputs
};

std::vector<Case> read_cases(const std::string& path);

// A plugin that was told the shapes of a case.
struct Prepared {
  PluginPointer plugin;  // null where it refused the case
  std::string words;     // what it printed
  size_t workspace = 0;  // bytes
};

// Throws where the library has no such operator.
Prepared prepare(const Library& library, const Case& c);

size_t bytes(const nvinfer1::PluginTensorDesc& tensor);

// Whole files. Throw where they cannot be read or written.
std::vector<char> read(const std::string& path);
void write(const std::string& path, const std::vector<char>& data);

}  // namespace nystra::host
