#include "casemate/local/spec_check.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::local {
namespace {

ControlGroupLayout everything() {
  const ControllerPlace place{"/sys/fs/cgroup", true};
  return {place, place, place, place};
}

BackendDeclarations declare(const ControlGroupLayout& layout) {
  return local::declare("linux", Isolation::container, layout);
}

SandboxSpec spec() {
  SandboxSpec spec;
  spec.kind = "test";
  return spec;
}

TEST(LinuxDeclarations, ClaimTheRungAndNoMoreThanTheMachineHolds) {
  const BackendDeclarations declared = declare(everything());
  EXPECT_EQ(declared.name, "linux");
  EXPECT_EQ(declared.isolation, Isolation::container);
  EXPECT_EQ(declared.egress_modes, (std::set<Egress>{Egress::allowlist, Egress::closed}));
  EXPECT_EQ(join_names(declared.capabilities),
            "exec, host_tools, files_in, files_out, files_list, files_delete, snapshot");
  EXPECT_EQ(declared.limits.files_in.max_bytes_per_file, 64 * kMiB);
  EXPECT_EQ(declared.limits.files_out.max_total_bytes, 256 * kMiB);
  EXPECT_EQ(declared.limits.files_out.max_files, 256U);
  EXPECT_EQ(declared.image_forms,
            (std::set<ImageForm>{ImageForm::host, ImageForm::dir, ImageForm::oci,
                                 ImageForm::docker_archive, ImageForm::registry}));
  EXPECT_EQ(join_names(declared.enforceable_limits), "memory, pids, disk, cpu, files, time");
  EXPECT_TRUE(declared.cpu_seconds_enforceable);
  EXPECT_FALSE(declare({}).cpu_seconds_enforceable) << "nobody counts for a whole call";
  EXPECT_EQ(join_names(declare({}).enforceable_limits), "pids, disk, files, time");
}

TEST(LinuxLimitsHeld, ADefaultThatCannotBeHeldRunsAndSaysSo) {
  EXPECT_TRUE(settle_limits({}, declare(everything()), {}).empty());
  EXPECT_EQ(settle_limits({}, declare({}), {}), (std::set<Limit>{Limit::memory, Limit::cpu}));
  EXPECT_EQ(settle_limits({}, declare(everything()), {{Limit::cpu, "EACCES"}}),
            std::set<Limit>{Limit::cpu});
}

TEST(LinuxLimitsHeld, AStatedSizeAboveWhatTheMachineHasIsRefusedWithTheNumber) {
  const BackendDeclarations declared = declare(everything());
  SandboxSpec one = spec();
  one.resources.memory_bytes = stated(kGiB);
  one.resources.disk_bytes = stated(kGiB);
  check_servable(one, declared, {}, kGiB);
  one.resources.memory_bytes = stated(kGiB + 1);
  expect_refusal<SandboxLimitNotEnforceable>([&] { check_servable(one, declared, {}, kGiB); },
                                             {"memory", "1073741825 bytes", "1073741824 bytes"});
  one.resources.memory_bytes = stated(kGiB);
  one.resources.disk_bytes = stated(kGiB + 1);
  expect_refusal<SandboxLimitNotEnforceable>([&] { check_servable(one, declared, {}, kGiB); },
                                             {"disk", "1073741825 bytes", "1073741824 bytes"});
  // A default is no wish: a small machine runs with it.
  check_servable(spec(), declared, {}, 16 * kMiB);
}

TEST(LocalSpec, WithoutAnImageIsRefusedWhereThisMachinesOwnIsNoImage) {
  SandboxSpec one;
  one.kind = "k";
  BackendDeclarations declared = declare(everything());
  check_servable(one, declared);
  declared.image_forms.erase(ImageForm::host);
  expect_refusal<SandboxImageNotSupported>([&] { check_servable(one, declared); },
                                           "none was named");
  one.image = "dir:/somewhere";
  check_servable(one, declared);
}

// RL-06
TEST(LinuxLimitsHeld, AStatedOneIsRefusedWithTheReason) {
  Resources resources;
  resources.memory_bytes = stated(64 * kMiB);
  expect_refusal<SandboxLimitNotEnforceable>([&] { settle_limits(resources, declare({}), {}); },
                                             "memory");
  resources = {};
  resources.cpu_millis = stated(500);
  expect_refusal<SandboxLimitNotEnforceable>(
      [&] { settle_limits(resources, declare(everything()), {{Limit::cpu, "writing cpu.max"}}); },
      {"cpu", "writing cpu.max"});
  resources = {};
  resources.cpu_seconds = stated(5);
  expect_refusal<SandboxLimitNotEnforceable>(
      [&] { settle_limits(resources, declare(everything()), {{Limit::cpu, "making cpuacct"}}); },
      {"cpu", "making cpuacct"});
  expect_refusal<SandboxLimitNotEnforceable>([&] { settle_limits(resources, declare({}), {}); },
                                             "cpu");
}

TEST(LinuxLimitsHeld, ProcessesAreHeldWithoutTheirGroupToo) {
  Resources resources;
  resources.pids = stated(5);
  EXPECT_EQ(settle_limits(resources, declare(everything()), {{Limit::pids, "writing pids.max"}}),
            std::set<Limit>{});
}

// In a child that may not raise its limits and whose hard limit for `resource` is `value`.
template <typename Check>
bool holds_under(int resource, rlim_t value, Check check) {
  const pid_t child = fork();
  if (child == 0) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2]{};
    const rlimit limit{.rlim_cur = value, .rlim_max = value};
    const bool set = syscall(SYS_capset, &header, none) == 0 &&
                     setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0;
    _exit(set && check() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(LinuxLimitsHeld, AHardLimitBelowADefaultShowsAsNotHeld) {
  const auto gives = [](std::set<Limit> limits) {
    return [limits] { return settle_limits({}, declare(everything()), {}) == limits; };
  };
  EXPECT_TRUE(holds_under(RLIMIT_NOFILE, 1024, gives({})));
  EXPECT_TRUE(holds_under(RLIMIT_NOFILE, 1023, gives({Limit::files})));
  EXPECT_TRUE(holds_under(RLIMIT_FSIZE, 256 * kMiB, gives({})));
  EXPECT_TRUE(holds_under(RLIMIT_FSIZE, 256 * kMiB - 1, gives({Limit::disk})));
  EXPECT_TRUE(holds_under(RLIMIT_DATA, 768 * kMiB, gives({})));
  EXPECT_TRUE(holds_under(RLIMIT_DATA, 768 * kMiB - 1, gives({Limit::memory})));
  EXPECT_TRUE(holds_under(RLIMIT_STACK, 8 * kMiB, gives({})));
  EXPECT_TRUE(holds_under(RLIMIT_STACK, 8 * kMiB - 1, gives({Limit::memory})));
  EXPECT_TRUE(holds_under(RLIMIT_NPROC, 127, gives({Limit::pids})));
  EXPECT_TRUE(holds_under(RLIMIT_CPU, 100000, gives({Limit::cpu})));
}

TEST(LinuxLimitsHeld, AHardLimitBelowAStatedOneIsRefusedByItsName) {
  EXPECT_TRUE(holds_under(RLIMIT_FSIZE, 4 * kMiB, [] {
    Resources resources;
    resources.disk_bytes = stated(4 * kMiB);
    if (!settle_limits(resources, declare(everything()), {}).empty()) return false;
    resources.disk_bytes = stated(4 * kMiB + 1);
    return expect_refusal<SandboxLimitNotEnforceable>(
               [&] { settle_limits(resources, declare(everything()), {}); },
               {"disk", "RLIMIT_FSIZE", "4194304"}) != "";
  }));
}

TEST(LinuxSpecCheck, TakesTheDefaultAndTheImageByName) {
  check_servable(spec(), declare(everything()));
  SandboxSpec named = spec();
  named.image = "host";
  check_servable(named, declare(everything()));
  named.image_id = "1234";
  expect_refusal<SandboxImageNotSupported>([&] { check_servable(named, declare(everything())); },
                                           "1234");
}

// ISO-17
TEST(LinuxSpecCheck, RefusesWhatARouterWouldHaveRefused) {
  SandboxSpec other = spec();
  other.requires_os_family = OsFamily::posix;
  check_servable(other, declare(everything()));
  other.requires_os_family = OsFamily::windows;
  expect_refusal<SandboxOsFamilyNotSupported>([&] { check_servable(other, declare(everything())); },
                                              {"posix", "windows"});
  SandboxSpec large = spec();
  large.requires_capabilities = {Capability::files_in, Capability::files_out};
  large.files_in = declare({}).limits.files_in;
  large.files_out = declare({}).limits.files_out;
  check_servable(large, declare(everything()));
  large.files_out.max_files += 1;
  expect_refusal<SandboxTransferLimitsNotPermitted>(
      [&] { check_servable(large, declare(everything())); },
      {"files_out", "max_files 257 over 256", "kind 'test'", "backend 'linux'"});
}

TEST(LinuxSpecCheck, LeavesOutTheLimitsOfADirectionThatTheSpecCannotUse) {
  SandboxSpec large = spec();
  large.requires_capabilities = {Capability::exec, Capability::files_in};
  large.files_out.max_bytes_per_file = declare({}).limits.files_out.max_bytes_per_file + 1;
  check_servable(large, declare(everything()));
  large.outputs_named_at_call_time = true;
  expect_refusal<SandboxTransferLimitsNotPermitted>(
      [&] { check_servable(large, declare(everything())); },
      {"files_out", "max_bytes_per_file 67108865 over 67108864"});
  large.outputs_named_at_call_time = false;
  large.requires_capabilities = {Capability::exec};
  large.files_in.max_files = 257;
  check_servable(large, declare(everything()));
}

TEST(LinuxSpecCheck, AWorkDirectoryOfTheLongestLengthPasses) {
  SandboxSpec longest = spec();
  longest.work_dir = "/" + std::string(199, 'w');
  check_servable(longest, declare(everything()));
  longest.work_dir += "w";
  expect_refusal<InvalidArgument>([&] { check_servable(longest, declare(everything())); }, "200");
}

TEST(LinuxSpecCheck, ANameThatOnlyBeginsLikeATakenOneIsFree) {
  SandboxSpec near = spec();
  near.work_dir = "/tmpfiles";
  check_servable(near, declare(everything()));
  near.work_dir = "/tmp";
  expect_refusal<InvalidArgument>([&] { check_servable(near, declare(everything())); }, "/tmp");
}

}  // namespace
}  // namespace casemate::local
