// Where the kernel enters `casemate-call`, and what the compiler may call for by itself.

#include <sys/syscall.h>

#include <cstddef>

#include "casemate/guest/agent/call_tool/kernel.h"

int main(int count, char** words);

// The stack that the kernel made: how many words, the words, and behind them the environment.
#if defined(__x86_64__)
asm(".globl _start\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call begin\n");
#else
asm(".globl _start\n_start:\n  mov x29, #0\n  mov x0, sp\n  bl begin\n");
#endif

extern "C" {

[[noreturn]] void begin(long* stack) {
  const int status = main(static_cast<int>(stack[0]), reinterpret_cast<char**>(stack + 1));
  while (true) casemate::call_tool::system_call(SYS_exit_group, status);
}

void* memcpy(void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
  }
  return to;
}

void* memset(void* to, int value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) static_cast<char*>(to)[i] = static_cast<char>(value);
  return to;
}

}  // extern "C"
