#include "casemate/conformance/host_marks.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string_view>
#include <system_error>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/socket.h"

namespace casemate::conformance {
namespace {

namespace fs = std::filesystem;

// As much as the guest's side reads.
constexpr std::size_t kMostRead = 1 << 20;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kMostRead, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

}  // namespace

std::string fresh_mark() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

HostFile::HostFile()
    : mark_(fresh_mark()), directory_(fs::temp_directory_path() / "casemate-probe-XXXXXX") {
  if (mkdtemp(directory_.data()) == nullptr) {
    throw SandboxUnavailable(
        fmt::format("a probe's file on the host cannot be made: {}", std::strerror(errno)),
        "have a temporary directory that can be written");
  }
  std::ofstream(path()) << mark_;
  std::error_code ignored;
  fs::permissions(directory_, fs::perms(0755), ignored);
  fs::permissions(path(), fs::perms(0644), ignored);
}

HostFile::~HostFile() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

std::string HostFile::names() const {
  std::set<std::string> sorted;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    sorted.insert(entry.path().filename());
  }
  std::string text;
  for (const std::string& name : sorted) text += (text.empty() ? "" : " ") + name;
  return text;
}

Bystander::Bystander() {
  std::string words[] = {"sleep", "600"};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  const int error = posix_spawnp(&pid_, argv[0], nullptr, nullptr, argv, environ);
  if (error == 0) return;
  throw SandboxUnavailable(
      fmt::format("a probe's process on the host cannot be started: {}", std::strerror(error)),
      "have `sleep` in the path");
}

Bystander::~Bystander() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string own_namespace(const std::string& kind) {
  std::error_code unreadable;
  return fs::read_symlink("/proc/self/ns/" + kind, unreadable);
}

std::map<std::string, std::string> host_digests() {
  std::map<std::string, std::string> digests;
  for (const char* path :
       {"/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/etc/sudoers",
        "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key", "/root/.bash_history",
        "/root/.ssh/id_rsa", "/root/.ssh/id_ed25519", "/root/.ssh/authorized_keys"}) {
    const std::string bytes = bytes_of(path);
    if (!bytes.empty()) digests[path] = sha256_hex(bytes);
  }
  return digests;
}

std::string host_command_in_hex() {
  std::string text;
  for (const char byte : bytes_of("/proc/self/cmdline")) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::map<std::string, std::string> host_environment() {
  static const std::set<std::string_view> common{"PATH",   "HOME", "LANG",  "LC_ALL",
                                                 "TERM",   "USER", "SHELL", "LOGNAME",
                                                 "TMPDIR", "PWD",  "SHLVL", "TZ"};
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text(*each);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_valid_utf8(text)) continue;
    const std::string_view name = text.substr(0, equals);
    if (!common.contains(name)) variables.emplace(name, text.substr(equals + 1));
  }
  return variables;
}

PathListener::PathListener() : socket_(sys::make_stream_socket()) {
  sys::bind_to_path(socket_.get(), path());
  sys::start_listening(socket_.get());
  fs::permissions(path(), fs::perms(0777));
}

LoopbackService::LoopbackService()
    : listener_(sys::listen_on_loopback()),
      datagrams_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener_.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!datagrams_ ||
      bind(datagrams_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw std::system_error(errno, std::generic_category(), "a datagram socket on loopback");
  }
}

bool LoopbackService::has_datagram() const {
  char byte = 0;
  return recv(datagrams_.get(), &byte, 1, MSG_DONTWAIT) >= 0;
}

AbstractListener::AbstractListener()
    : socket_(sys::make_stream_socket()), name_(sys::bind_to_fresh_name(socket_.get())) {
  sys::start_listening(socket_.get());
}

}  // namespace casemate::conformance
