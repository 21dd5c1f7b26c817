// Fibers: threads of control with a stack each, switched by hand.
//
// On x86-64 a switch saves six registers in a few lines of assembly (about 40 ns);
// elsewhere, or with NYSTRA_EMULATOR_UCONTEXT, swapcontext() does it with a system call.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

constexpr size_t kStackBytes = 256 * 1024;

#if defined(__x86_64__) && !defined(NYSTRA_EMULATOR_UCONTEXT)
using Context = void*;  // a stack pointer

extern "C" void emu_switch(void** save, void* load);
asm(".text\n"
    ".weak emu_switch\n"
    ".type emu_switch,@function\n"
    "emu_switch:\n"
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
    "movq %rsp,(%rdi); movq %rsi,%rsp\n"
    "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret\n");

inline void switch_to(Context& save, Context& load) { emu_switch(&save, load); }

inline void make_context(Context& context, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 1;
  *--top = reinterpret_cast<void*>(entry);  // emu_switch returns into it, the stack as after a call
  context = top - 6;                        // the six registers: any value
}
#else
using Context = ucontext_t;  // must not move once it is created

inline void switch_to(Context& save, Context& load) { swapcontext(&save, &load); }

inline void make_context(Context& context, char* stack, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

// Stacks, kept from one launch to the next.
inline std::vector<char*> stacks;

inline char* stack_of(size_t fiber) {
  while (stacks.size() <= fiber) {
    void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    stacks.push_back(static_cast<char*>(memory));
  }
  return stacks[fiber];
}

// AddressSanitizer must know of every switch. `leaving` fibers return their fake stack.
struct SwitchNotice {
  void* fake_stack = nullptr;

  void begin([[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes,
             [[maybe_unused]] bool leaving) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(leaving ? nullptr : &fake_stack, stack, bytes);
#endif
  }
  void end([[maybe_unused]] const void** stack, [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
  }
};

inline void poison_for_asan([[maybe_unused]] const void* first, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(first, bytes);
#endif
}

inline void unpoison_for_asan([[maybe_unused]] const void* first, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(first, bytes);
#endif
}

}  // namespace emu
