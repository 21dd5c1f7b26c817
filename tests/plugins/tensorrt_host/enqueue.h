// Plugins on a device: inputs from files, outputs into files.
#pragma once

#include <string>

#include "library.h"

namespace nystra::host {

// Whether there is a device; its name, or why there is none.
bool device(std::string* words);

// Runs every case that `folder`/cases.txt names and writes its outputs into `out`. A case is
//
//   case NAME OPERATOR float32|float16|bfloat16
//   int NAME VALUE        float NAME VALUE
//   in T|I SIZES...       (bytes in NAME.in0, NAME.in1, ...)
//   out T|I SIZES...      (written to NAME.out0, ...)
//   end
//
// A case that is refused writes NAME.refused with the words. Outputs and workspace hold NaN before,
// and bytes around them must stay as they are; a second run, replayed from a captured graph, must
// give the same bytes. Returns the number of cases for which one of these does not hold.
int run_cases(const Library& library, const std::string& folder, const std::string& out);

}  // namespace nystra::host
