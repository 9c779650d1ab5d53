// Build-time program: writes the programs' system call filter as a C++ array.
//
// Of the calls that were known when it was reviewed (up to Linux 6.1) the filter allows what it
// does not refuse, in groups, each with its reason: the boundary is the namespaces, the user id and
// the empty capability sets; the filter takes away kernel surface that ordinary programs never
// touch, and a rare old call missing breaks CPython, Node or a compiler. A call that is newer is
// refused until somebody has looked at it (`kReviewedLater`), with ENOSYS, so that a C library does
// what it did before the call was there. A refusal is an errno, never a kill: programs probe.
// ENOSYS where a library falls back to an older call, EPERM elsewhere.
//
// Done here and not at run time because compiling the rules costs 1.6 ms, loading them 0.1.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, int error) {
  std::fprintf(stderr, "seccomp filter: %s: error %d\n", what, error);
  std::exit(1);
}

void check(int result, const char* what) {
  if (result < 0) fail(what, -result);
}

struct RefusedGroup {
  const char* reason;
  int error;
  std::vector<const char*> calls;
};

const std::vector<RefusedGroup>& refused_groups() {
  static const std::vector<RefusedGroup> groups = {
      {"changes what the root is made of",
       EPERM,
       {"mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen",
        "fsconfig", "fsmount", "fspick", "mount_setattr", "swapon", "swapoff", "quotactl",
        "quotactl_fd"}},
      {"new namespaces give capabilities over fresh kernel surface", EPERM, {"unshare", "setns"}},
      {"its flags are behind a pointer, so namespaces cannot be told apart; libraries fall back to "
       "clone",
       ENOSYS,
       {"clone3"}},
      {"reads or changes another process",
       EPERM,
       {"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
        "pidfd_getfd"}},
      {"large, often faulty kernel surface, and programs fall back without it",
       ENOSYS,
       {"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd"}},
      {"loads code into the kernel or watches it",
       EPERM,
       {"bpf", "perf_event_open", "init_module", "finit_module", "delete_module", "create_module",
        "kexec_load", "kexec_file_load", "syslog", "lookup_dcookie", "fanotify_init"}},
      {"keyrings are shared by user id, not by namespace",
       EPERM,
       {"add_key", "keyctl", "request_key"}},
      {"belongs to the machine",
       EPERM,
       {"reboot", "acct", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime",
        "sethostname", "setdomainname", "vhangup", "nfsservctl", "_sysctl", "sysfs", "ustat",
        "uselib", "memfd_secret"}},
      {"input and output ports, segments: surface of old machines",
       EPERM,
       {"iopl", "ioperm", "modify_ldt", "vm86", "vm86old"}},
      {"opens by inode number, past every directory",
       EPERM,
       {"open_by_handle_at", "name_to_handle_at"}},
      {"placement of memory on nodes belongs to the machine",
       EPERM,
       {"move_pages", "migrate_pages"}},
      {"maps user pages into pipes, the road of several escapes", EPERM, {"vmsplice"}},
  };
  return groups;
}

// No code of any group has these names on this architecture or in this libseccomp: nothing to
// refuse. They are refused where they exist.
bool refuse(scmp_filter_ctx filter, const char* call, int error) {
  const int number = seccomp_syscall_resolve_name(call);
  if (number == __NR_SCMP_ERROR || number < 0) return false;
  check(seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<std::uint16_t>(error)), number, 0),
        call);
  return true;
}

void refuse_where(scmp_filter_ctx filter, const char* call, int error, scmp_arg_cmp condition) {
  check(seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<std::uint16_t>(error)),
                         seccomp_syscall_resolve_name(call), 1, condition),
        call);
}

void add_rules(scmp_filter_ctx filter) {
  for (const RefusedGroup& group : refused_groups()) {
    for (const char* call : group.calls) refuse(filter, call, group.error);
  }

  // clone with any namespace flag. One rule a flag: the comparison is of masked bits being equal.
  for (const std::uint64_t flag :
       {0x00000080ULL /* NEWTIME */, 0x00020000ULL /* NEWNS */, 0x02000000ULL /* NEWCGROUP */,
        0x04000000ULL /* NEWUTS */, 0x08000000ULL /* NEWIPC */, 0x10000000ULL /* NEWUSER */,
        0x20000000ULL /* NEWPID */, 0x40000000ULL /* NEWNET */}) {
    // The low byte of clone's flags is the exit signal, so NEWTIME cannot be asked by clone.
    if (flag == 0x80) continue;
    refuse_where(filter, "clone", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
  }

  // Typing into the caller's terminal; its console; line disciplines, drivers of modems and radios
  // that the kernel loads for who asks. Compared as the kernel does, by the low 32 bits.
  for (const std::uint64_t request : {0x5412ULL /* TIOCSTI */, 0x541CULL /* TIOCLINUX */,
                                      0x541DULL /* TIOCCONS */, 0x5423ULL /* TIOCSETD */}) {
    refuse_where(filter, "ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffULL, request));
  }

  // Execution domains change how memory is laid out; setting PER_LINUX (0) and reading the current
  // one (all bits set) are allowed. A rule can compare an argument once only, so: a bit set while
  // the highest is clear, and the highest set while some bit is clear.
  for (int bit = 0; bit < 31; ++bit) {
    const std::uint64_t mask = (1ULL << bit) | (1ULL << 31);
    refuse_where(filter, "personality", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, mask, 1ULL << bit));
    refuse_where(filter, "personality", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, mask, 1ULL << 31));
  }
}

// An `int` argument: the kernel looks at the low 32 bits only.
constexpr std::uint64_t kInt = 0xffffffffULL;

// What is asked for in a call of socket() or socketpair(), refused with what a kernel answers that
// is built without it. Of socketpair() too: it makes two sockets before it finds that their family
// has no pairs.
void refuse_socket(scmp_filter_ctx filter, int error, const std::vector<scmp_arg_cmp>& asked) {
  for (const int call : {SCMP_SYS(socket), SCMP_SYS(socketpair)}) {
    check(seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(static_cast<std::uint16_t>(error)), call,
                                 static_cast<unsigned>(asked.size()), asked.data()),
          "socket");
  }
}

// Allow lists of (family, type, protocol), for a program without a network card: each protocol that
// a kernel offers is surface, and distributions load rare ones (MPTCP, SCTP, DCCP, UDP-Lite) when
// somebody asks for them. Allowed are
//   AF_UNIX                     every type; it has one protocol
//   AF_INET, AF_INET6           SOCK_STREAM with TCP, SOCK_DGRAM with UDP, by number or as 0
//   AF_NETLINK                  its route protocol (0), which lists the interfaces
// Rules refuse and can compare an argument once, so a list is written as what lies between and
// above its members.
void add_socket_rules(scmp_filter_ctx filter) {
  for (std::uint64_t family = 0; family < 48; ++family) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) {
      continue;
    }
    refuse_socket(filter, EAFNOSUPPORT, {SCMP_A0(SCMP_CMP_MASKED_EQ, kInt, family)});
  }
  refuse_socket(filter, EAFNOSUPPORT, {SCMP_A0(SCMP_CMP_GT, 47)});

  // Every other netlink protocol (netfilter, audit, crypto, ...); the kernel has 32.
  for (std::uint64_t protocol = 1; protocol < 32; ++protocol) {
    refuse_socket(filter, EAFNOSUPPORT,
                  {SCMP_A0(SCMP_CMP_MASKED_EQ, kInt, AF_NETLINK),
                   SCMP_A2(SCMP_CMP_MASKED_EQ, kInt, protocol)});
  }

  // One comparison for both: the numbers differ in one bit.
  static_assert((AF_INET ^ AF_INET6) == 8 && (AF_INET & 8) == 0);
  const scmp_arg_cmp internet = SCMP_A0(SCMP_CMP_MASKED_EQ, kInt & ~8ULL, AF_INET);
  // The kernel's SOCK_TYPE_MASK; above it are flags.
  constexpr std::uint64_t kTypeMask = 0xf;
  for (std::uint64_t type = 0; type <= kTypeMask; ++type) {
    if (type == SOCK_STREAM || type == SOCK_DGRAM) continue;
    // Raw ones are a matter of rights, and programs expect to be told so.
    refuse_socket(filter, type == SOCK_RAW ? EPERM : ESOCKTNOSUPPORT,
                  {internet, SCMP_A1(SCMP_CMP_MASKED_EQ, kTypeMask, type)});
  }
  const auto allow_only = [&](std::uint64_t type, std::uint64_t allowed) {
    const scmp_arg_cmp of_type = SCMP_A1(SCMP_CMP_MASKED_EQ, kTypeMask, type);
    for (std::uint64_t protocol = 1; protocol < allowed; ++protocol) {
      refuse_socket(filter, EPROTONOSUPPORT,
                    {internet, of_type, SCMP_A2(SCMP_CMP_MASKED_EQ, kInt, protocol)});
    }
    refuse_socket(filter, EPROTONOSUPPORT, {internet, of_type, SCMP_A2(SCMP_CMP_GT, allowed)});
  };
  allow_only(SOCK_STREAM, IPPROTO_TCP);
  allow_only(SOCK_DGRAM, IPPROTO_UDP);
}

// What tells of, or holds up, whoever opens a file elsewhere: the machine's own programs are files
// of /usr, too. EINVAL is what a kernel without them answers, as any kernel for leases of files on
// a network.
void add_file_watch_rules(scmp_filter_ctx filter) {
  for (const std::uint64_t command :
       {1024ULL /* F_SETLEASE */, 1026ULL /* F_NOTIFY */, 1040ULL /* F_SETDELEG, Linux 6.19 */}) {
    refuse_where(filter, "fcntl", EINVAL, SCMP_A1(SCMP_CMP_MASKED_EQ, kInt, command));
  }
}

// Huge pages are reserved by the machine's administrator for somebody, and what is taken of them is
// not charged to a group's memory. ENOMEM is what a machine without reserved ones answers.
void add_huge_page_rules(scmp_filter_ctx filter) {
  refuse_where(filter, "mmap", ENOMEM, SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_HUGETLB, MAP_HUGETLB));
  refuse_where(filter, "memfd_create", ENOMEM,
               SCMP_A1(SCMP_CMP_MASKED_EQ, MFD_HUGETLB, MFD_HUGETLB));
  refuse_where(filter, "shmget", ENOMEM, SCMP_A2(SCMP_CMP_MASKED_EQ, SHM_HUGETLB, SHM_HUGETLB));
}

// Where a host's user has one id to give, the first process of an exec has the program's, and the
// kernel lets equals lower each other's limits: that process's end would look like the provider's
// failure.
void add_limit_rules(scmp_filter_ctx filter) {
  check(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 2,
                         SCMP_A0(SCMP_CMP_MASKED_EQ, kInt, 1), SCMP_A2(SCMP_CMP_NE, 0)),
        "prlimit64");
}

// The newest call of the review. From 424 on all architectures number their calls alike.
constexpr std::uint32_t kLastReviewed = 450;  // set_mempolicy_home_node, Linux 5.17
// Newer ones that give no new surface.
constexpr std::uint32_t kReviewedLater[] = {
    452,                 // fchmodat2 (6.6): fchmodat with its flags
    454, 455, 456,       // futex_wake, futex_wait, futex_requeue (6.7): futex in parts
    462,                 // mseal (6.10): gives up rights over memory
    463, 464, 465, 466,  // setxattrat and the like (6.13): setxattr by descriptor
};

// What goes before the compiled rules: a call of this architecture newer than the review. Jumps of
// BPF are relative, so rules need not know what is before them. The numbers of x32 are above, too.
std::vector<sock_filter> newer_calls() {
  const auto size = static_cast<unsigned char>(std::size(kReviewedLater));
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 0,
               static_cast<unsigned char>(size + 3)),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kLastReviewed, 0, static_cast<unsigned char>(size + 1)),
  };
  unsigned char left = size;
  for (const std::uint32_t number : kReviewedLater) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, left--, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  return program;
}

std::vector<unsigned char> compile() {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr) fail("seccomp_init", ENOMEM);
  // The other ABIs of the machine (i386, x32) number their calls anew: all of them are refused.
  check(seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), "other ABIs");
  check(seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2), "binary tree");
  add_rules(filter);
  add_socket_rules(filter);
  add_huge_page_rules(filter);
  add_file_watch_rules(filter);
  add_limit_rules(filter);

  std::FILE* file = std::tmpfile();
  if (file == nullptr) fail("tmpfile", errno);
  check(seccomp_export_bpf(filter, fileno(file)), "seccomp_export_bpf");
  seccomp_release(filter);
  const std::vector<sock_filter> before = newer_calls();
  const std::size_t offset = before.size() * sizeof(sock_filter);
  const auto rules = static_cast<std::size_t>(lseek(fileno(file), 0, SEEK_END));
  std::vector<unsigned char> bytes(offset + rules);
  std::memcpy(bytes.data(), before.data(), offset);
  if (pread(fileno(file), bytes.data() + offset, rules, 0) != static_cast<ssize_t>(rules)) {
    fail("reading the filter back", errno);
  }
  std::fclose(file);
  return bytes;
}

}  // namespace

int main() {
  const std::vector<unsigned char> bytes = compile();
  std::printf(
      "// Written by the build from seccomp/generate.cc.\n"
      "#include \"casemate/guest/agent/seccomp.h\"\n\n"
      "namespace casemate::guest {\n\n"
      "alignas(8) const unsigned char kSeccompProgram[] = {");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::printf("%s0x%02x,", i % 16 == 0 ? "\n    " : " ", bytes[i]);
  }
  std::printf(
      "\n};\nconst std::size_t kSeccompProgramBytes = sizeof(kSeccompProgram);\n\n"
      "}  // namespace casemate::guest\n");
  return 0;
}
