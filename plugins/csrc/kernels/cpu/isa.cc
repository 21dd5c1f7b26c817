// Chooses the instruction set, once.
#include "isa.h"

#include <cstdlib>
#include <cstring>

#include "../../export.h"

#if defined(__x86_64__)
#include "cpu_features.h"
#endif

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
#if defined(NYSTRA_HAVE_AVX512_BF16)
namespace avx512_bf16 {
constexpr Kernels with_pairs(Kernels k) {
  k.isa = "avx512_bf16";
  k.attention_scratch = attention_scratch;
  k.attention = attention;
  k.window_softmax_scratch = window_softmax_scratch;
  k.window_softmax = window_softmax;
  return k;
}
constexpr Kernels kTable = with_pairs(avx512::kTable);
}  // namespace avx512_bf16
#endif
#if defined(NYSTRA_HAVE_AMX)
namespace amx {
constexpr Kernels with_tiles(Kernels k) {
  k.isa = "amx";
  k.attention_scratch = attention_scratch;
  k.attention = attention;
  k.window_softmax_scratch = window_softmax_scratch;
  k.window_softmax = window_softmax;
  k.window_nystrom_scratch = window_nystrom_scratch;
  k.window_nystrom = window_nystrom;
  return k;
}
constexpr Kernels kTable = with_tiles(avx512::kTable);
}  // namespace amx
#endif

namespace {

const Kernels* choose() {
  const char* const forced = std::getenv("NYSTRA_CPU_ISA");
  const auto wanted = [forced](const Kernels& k) {
    return forced == nullptr || *forced == '\0' || std::strcmp(forced, k.isa) == 0;
  };
#if defined(__x86_64__)
  [[maybe_unused]] const CpuFeatures cpu;
#endif
#if defined(NYSTRA_HAVE_AMX)
  if (wanted(amx::kTable) && cpu.amx()) return &amx::kTable;
#endif
#if defined(NYSTRA_HAVE_AVX512_BF16)
  if (wanted(avx512_bf16::kTable) && cpu.avx512_bf16()) return &avx512_bf16::kTable;
#endif
#if defined(NYSTRA_HAVE_AVX512)
  if (wanted(avx512::kTable) && cpu.avx512()) return &avx512::kTable;
#endif
#if defined(NYSTRA_HAVE_AVX2)
  if (wanted(avx2::kTable) && cpu.avx2()) return &avx2::kTable;
#endif
  return wanted(generic::kTable) ? &generic::kTable : nullptr;
}

}  // namespace

const Kernels* kernels() {
  static const Kernels* const chosen = choose();
  return chosen;
}

}  // namespace nystra

// For nystra.plugins.isa(): the name of the set in use, null if the forced one cannot run here.
NYSTRA_EXPORT const char* nystra_isa() {
  return nystra::kernels() != nullptr ? nystra::kernels()->isa : nullptr;
}
