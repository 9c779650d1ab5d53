#pragma once

// The few system calls of `casemate-call`, which is linked without the C library: it is in every
// sandbox, runs under any libc or none, and has to start as fast as a call is. Results are the
// kernel's own: at least 0, or a negated errno.

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "casemate-call knows the system calls of x86-64 and arm64"
#endif

namespace casemate::call_tool {

inline long system_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#endif
}

inline long address(const void* pointer) { return reinterpret_cast<long>(pointer); }

}  // namespace casemate::call_tool
