// Chooses the instruction set, once.
#include "isa.h"

#include <cstdlib>
#include <cstring>

namespace nystra {

#define NYSTRA_NAME(result, name, parameters) name,
#define NYSTRA_TABLE(set)                                             \
  namespace set {                                                     \
  constexpr Kernels kTable = {#set, NYSTRA_CPU_KERNELS(NYSTRA_NAME)}; \
  }
NYSTRA_TABLE(generic)
#if defined(NYSTRA_HAVE_AVX2)
NYSTRA_TABLE(avx2)
#endif
#if defined(NYSTRA_HAVE_AVX512)
NYSTRA_TABLE(avx512)
#endif

namespace {

const Kernels* choose() {
  const char* const forced = std::getenv("NYSTRA_CPU_ISA");
  const auto wanted = [forced](const Kernels& k) {
    return forced == nullptr || *forced == '\0' || std::strcmp(forced, k.isa) == 0;
  };
#if defined(NYSTRA_HAVE_AVX512)
  if (wanted(avx512::kTable) && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &avx512::kTable;
#endif
#if defined(NYSTRA_HAVE_AVX2)
  // Every CPU with AVX2 has F16C, which older compilers cannot ask for.
  if (wanted(avx2::kTable) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &avx2::kTable;
#endif
  return wanted(generic::kTable) ? &generic::kTable : nullptr;
}

}  // namespace

const Kernels* kernels() {
  static const Kernels* const chosen = choose();
  return chosen;
}

}  // namespace nystra

// For nystra.plugins.isa(): the name of the set in use, null where the forced one cannot run here.
extern "C" __attribute__((visibility("default"))) const char* nystra_isa() {
  return nystra::kernels() != nullptr ? nystra::kernels()->isa : nullptr;
}
