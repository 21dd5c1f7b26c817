// Plugins on a device: inputs from files, outputs into files.
#pragma once

#include <string>

#include "library.h"

namespace nystra::host {

// Whether there is a device; its name, or why there is none.
bool device(std::string* words);

// Runs every case that `folder`/cases.txt names (cases.h) and writes its outputs into `out`.
//
// A case that is refused writes NAME.refused with the words. Outputs and workspace hold NaN before,
// and bytes around them must stay as they are; a second run, replayed from a captured graph, must
// give the same bytes. Returns the number of cases for which one of these does not hold.
int run_cases(const Library& library, const std::string& folder, const std::string& out);

// Takes the times of every case in `folder`/cases.txt, for about `seconds` each, and writes them
// into `file` as JSON: milliseconds of a launch by the device's own clock, of samples of so many
// launches. Launches take turns at sets of buffers that together are larger than the device's
// cache. Returns the number of cases that failed.
int time_cases(const Library& library, const std::string& folder, const std::string& file,
               double seconds);

}  // namespace nystra::host
