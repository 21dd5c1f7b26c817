// The features of an x86-64 CPU that the system supports. __builtin_cpu_supports is not used: in a
// library that is linked with Zig's runtime it is always false.
#pragma once

#include <cpuid.h>

#include <cstdint>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nystra {

class CpuFeatures {
 public:
  CpuFeatures() {
    uint32_t unused;
    if (!__get_cpuid(1, &unused, &unused, &leaf1_ecx_, &unused)) return;
    if (!__get_cpuid_count(7, 0, &unused, &leaf7_ebx_, &unused, &leaf7_edx_)) return;
    if (!__get_cpuid_count(7, 1, &leaf71_eax_, &unused, &unused, &unused)) leaf71_eax_ = 0;
    if (bit(leaf1_ecx_, 27)) states_ = saved_states();  // OSXSAVE
  }

  bool avx2() const {
    return saves(kAvxStates) && bit(leaf1_ecx_, 12) && bit(leaf1_ecx_, 29) &&  // FMA, F16C
           bit(leaf7_ebx_, 5);
  }

  // F, DQ, BW and VL.
  bool avx512() const {
    return avx2() && saves(kAvx512States) && bit(leaf7_ebx_, 16) && bit(leaf7_ebx_, 17) &&
           bit(leaf7_ebx_, 30) && bit(leaf7_ebx_, 31);
  }

  bool avx512_bf16() const { return avx512() && bit(leaf71_eax_, 5); }

  // Tiles of bfloat16, if Linux permits them for this process: they need 8 KiB per thread.
  bool amx() const {
#if defined(__linux__)
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return avx512_bf16() && bit(leaf7_edx_, 22) && bit(leaf7_edx_, 24) && saves(kTileStates) &&
           syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
    return false;
#endif
  }

 private:
  // Parts of a CPU's state that a system saves for each thread.
  static constexpr uint64_t kAvxStates = 6, kAvx512States = 0xe6, kTileStates = 0x60000;

  static bool bit(uint32_t word, int place) { return word >> place & 1; }

  static uint64_t saved_states() {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const uint64_t states = uint64_t(high) << 32 | low;
#if defined(__APPLE__)
    return states | kAvx512States;  // macOS saves them from a thread's first use on
#else
    return states;
#endif
  }

  bool saves(uint64_t states) const { return (states_ & states) == states; }

  uint32_t leaf1_ecx_ = 0, leaf7_ebx_ = 0, leaf7_edx_ = 0, leaf71_eax_ = 0;
  uint64_t states_ = 0;
};

}  // namespace nystra
