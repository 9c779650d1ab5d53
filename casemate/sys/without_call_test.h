#pragma once

// Runs a test's body in a thread of its own for which one system call fails, as on an older kernel
// or under an engine's filter. Filters belong to a thread, so nothing else notices.

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace casemate::sys {

// `number` fails with `error_number` when its third argument holds all of `third_argument_bits`.
template <typename Body>
void without_call(long number, int error_number, std::uint32_t third_argument_bits, Body body) {
  std::thread thread([&] {
    const auto failure = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error_number);
    std::array<sock_filter, 7> filter = {{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(__u64)),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, third_argument_bits),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third_argument_bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, failure),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{filter.size(), filter.data()};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
    body();
  });
  thread.join();
}

}  // namespace casemate::sys
