// Holds a TensorRT plugin library to what TensorRT asks of it, without TensorRT and without a GPU.
//
//   nystra_trt_host LIBRARY                         all checks that need no device
//   nystra_trt_host LIBRARY --enqueue CASES OUT     the kernels, on a device (exit code 3: none)
//   nystra_trt_host LIBRARY --time CASES OUT.json [SECONDS]   their times, there too
#include <cstdio>
#include <cstring>
#include <exception>

#include "checks.h"
#include "enqueue.h"

namespace {

using namespace nystra::host;

int conform(const Library& library, bool device) {
  Report report;
  report.check(library.creators().size() == examples().size(),
               "the library has a plugin for every example");
  for (const Example& one : examples()) {
    nvinfer1::IPluginCreatorV3One* const creator = library.creator(one.name);
    report.check(creator != nullptr, one.name + ": the library has it");
    if (creator == nullptr) continue;
    check_creator(*creator, one, report);
    check_build(*creator, one, report);
    check_lives(*creator, one, report);
    check_runtime(*creator, one, device, report);
  }
  std::printf("%d checks of %zu plugins, %d failed\n", report.checks(), library.creators().size(),
              report.failures());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool enqueue = argc == 5 && std::strcmp(argv[2], "--enqueue") == 0;
  const bool time = (argc == 5 || argc == 6) && std::strcmp(argv[2], "--time") == 0;
  if (argc != 2 && !enqueue && !time) {
    std::fprintf(stderr,
                 "usage: %s LIBRARY [--enqueue CASES OUT | --time CASES OUT.json [SECONDS]]\n",
                 argv[0]);
    return 2;
  }
  try {
    const Library library(argv[1]);
    std::string about;
    const bool here = device(&about);
    std::printf("device: %s\n", about.c_str());
    if (argc == 2) return conform(library, here);
    if (!here) return 3;
    if (time)
      return time_cases(library, argv[3], argv[4], argc == 6 ? std::stod(argv[5]) : 0.3) == 0 ? 0
                                                                                              : 1;
    return run_cases(library, argv[3], argv[4]) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
