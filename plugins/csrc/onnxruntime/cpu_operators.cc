#include <cstdlib>

#include "registration.h"

namespace nystra::ort {

void add_cpu_operators(Registration& registration) {
  if (nystra::kernels() == nullptr) {
    const std::string forced = std::getenv("NYSTRA_CPU_ISA");
    throw Refusal("NYSTRA_CPU_ISA is '" + forced +
                  "'; expected generic, avx2, avx512, avx512_bf16 or amx, one that this CPU and "
                  "this build have");
  }
  registration.add<CpuDevice>();
}

}  // namespace nystra::ort
