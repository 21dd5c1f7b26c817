// Chooses the instruction set, once.
#include "isa.h"

#include <cstdlib>
#include <cstring>

namespace nystra {
namespace {

#define NYSTRA_KERNELS(set)           \
  {#set,                              \
   set::pinv_scratch,                 \
   set::pinv_maxima,                  \
   set::pinv,                         \
   set::window_softmax_tasks,         \
   set::window_softmax_scratch,       \
   set::window_softmax_bias_size,     \
   set::window_softmax_bias,          \
   set::window_softmax,               \
   set::window_nystrom_scratch,       \
   set::window_nystrom_maxima,        \
   set::window_nystrom,               \
   set::window_nystromformer_scratch, \
   set::window_nystromformer_maxima,  \
   set::window_nystromformer,         \
   set::patch_match_workspace,        \
   set::patch_match_steps,            \
   set::patch_match_tasks,            \
   set::patch_match}

constexpr Kernels kGeneric = NYSTRA_KERNELS(generic);
#if defined(NYSTRA_HAVE_AVX2)
constexpr Kernels kAvx2 = NYSTRA_KERNELS(avx2);
#endif
#if defined(NYSTRA_HAVE_AVX512)
constexpr Kernels kAvx512 = NYSTRA_KERNELS(avx512);
#endif

const Kernels* choose() {
  const char* const forced = std::getenv("NYSTRA_CPU_ISA");
  const auto wanted = [forced](const Kernels& k) {
    return forced == nullptr || *forced == '\0' || std::strcmp(forced, k.isa) == 0;
  };
#if defined(NYSTRA_HAVE_AVX512)
  if (wanted(kAvx512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return &kAvx512;
#endif
#if defined(NYSTRA_HAVE_AVX2)
  // Every CPU with AVX2 has F16C, which older compilers cannot ask for.
  if (wanted(kAvx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &kAvx2;
#endif
  return wanted(kGeneric) ? &kGeneric : nullptr;
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
