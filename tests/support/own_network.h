#pragma once

// For tests: a network namespace of the test program's own, with addresses that a name may lead to,
// and a resolv.conf that leads to port 53 of its loopback. Nothing in it reaches anything else.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "casemate/sys/error.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

// Of the documentation ranges (RFC 5737, RFC 3849), which count as public.
inline constexpr const char* kPublicIpv4 = "203.0.113.7";
inline constexpr const char* kPublicIpv6 = "2001:db8::7";
// A second one, at which nothing listens but what a test starts.
inline constexpr const char* kOtherIpv4 = "203.0.113.8";

// Enters it before any test runs: the whole program stays in it.
class OwnNetwork : public ::testing::Environment {
 public:
  // Whose rights it is made with. In a user namespace of its own an ordinary user is somebody else
  // to the kernel, and what is tested there is another thing.
  enum class Rights { any, of_root_only };
  explicit OwnNetwork(Rights rights = Rights::any) : rights_(rights) {}

  void SetUp() override {
    if (rights_ == Rights::of_root_only && geteuid() != 0) {
      why_not() = "a network namespace of the test's own needs root";
      return;
    }
    try {
      enter();
      give("lo", "127.0.0.1");
      give("lo:1", kPublicIpv4);
      give("lo:2", kOtherIpv4);
      give_ipv6(kPublicIpv6);
      replace("/etc/resolv.conf", kResolvConf);
      replace("/etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n");
      why_not().clear();
    } catch (const std::system_error& error) {
      why_not() = std::string("no network namespace of the test's own: ") + error.what();
    }
  }

  // Empty: the program is in it.
  static std::string& why_not() {
    static std::string reason = "the test environment was not set up";
    return reason;
  }

  static constexpr const char* kResolvConf =
      "nameserver 127.0.0.1\nsearch .\noptions timeout:10 attempts:1\n";
  // In place of this program's own; only in the network.
  static void write_resolv_conf(const std::string& text) {
    const sys::UniqueFd file(open("/etc/resolv.conf", O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (!file || write(file.get(), text.data(), text.size()) < 0) {
      sys::throw_errno("/etc/resolv.conf");
    }
  }

 private:
  static void write_file(const char* path, const std::string& text) {
    const sys::UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
    if (!file || write(file.get(), text.data(), text.size()) < 0) sys::throw_errno(path);
  }

  static void enter() {
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) == 0) return;
    const std::string uid = std::to_string(getuid());
    const std::string gid = std::to_string(getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) sys::throw_errno("unshare");
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", uid + " " + uid + " 1");
    write_file("/proc/self/gid_map", gid + " " + gid + " 1");
  }

  // For this program and what it starts.
  static void replace(const char* path, const std::string& text) {
    std::string made = "/tmp/casemate-test-XXXXXX";
    const sys::UniqueFd file(mkostemp(made.data(), O_CLOEXEC));
    if (!file || write(file.get(), text.data(), text.size()) < 0) sys::throw_errno(made);
    fchmod(file.get(), 0644);
    const bool mounted = mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount(made.c_str(), path, nullptr, MS_BIND, nullptr) == 0;
    const int why = errno;
    unlink(made.c_str());
    if (!mounted) sys::throw_error(why, path);
  }

  static void give(const char* interface, const char* address) {
    const sys::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    inet_pton(AF_INET, address, &ipv4.sin_addr);
    std::memcpy(&request.ifr_addr, &ipv4, sizeof ipv4);
    if (ioctl(socket.get(), SIOCSIFADDR, &request) != 0) sys::throw_errno("SIOCSIFADDR");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) sys::throw_errno("SIOCSIFFLAGS");
  }

  static void give_ipv6(const char* address) {
    const sys::UniqueFd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    in6_ifreq request{};
    inet_pton(AF_INET6, address, &request.ifr6_addr);
    request.ifr6_prefixlen = 128;
    request.ifr6_ifindex = static_cast<int>(if_nametoindex("lo"));
    if (ioctl(socket.get(), SIOCSIFADDR, &request) != 0) sys::throw_errno("SIOCSIFADDR (IPv6)");
  }

  Rights rights_;
};

}  // namespace casemate
