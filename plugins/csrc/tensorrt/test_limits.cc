#include "test_limits.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include "operators/attributes.h"

namespace nystra::trt {
namespace {

cuda::LaunchLimits read_limits(const std::string& text) {
  cuda::LaunchLimits limits;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string digits = equals == std::string::npos ? "" : part.substr(equals + 1);
    const bool integer =
        !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    const long number = integer ? std::strtol(digits.c_str(), nullptr, 10) : 0;
    const bool known = name == "shared" || name == "blocks" ||
                       (name == "warps" && (number == 1 || number == 2 || number == 4));
    if (!known || number < 1)
      throw Refusal("NYSTRA_CUDA_LIMITS is '" + text +
                    "'; expected shared=BYTES, warps=1, 2 or 4, blocks=NUMBER, or some of them");
    if (name == "shared") limits.shared_bytes = limits.max_shared_bytes = number;
    if (name == "warps") limits.warps = number;
    if (name == "blocks") limits.blocks = number;
  }
  return limits;
}

}  // namespace

const cuda::LaunchLimits& test_limits() {
  static const cuda::LaunchLimits limits = [] {
    const char* const text = std::getenv("NYSTRA_CUDA_LIMITS");
    return text == nullptr ? cuda::LaunchLimits{} : read_limits(text);
  }();
  return limits;
}

}  // namespace nystra::trt
