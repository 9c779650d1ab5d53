#include "casemate/conformance/host_marks.h"

#include <fmt/format.h>
#include <stdlib.h>
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

AbstractListener::AbstractListener()
    : socket_(sys::make_stream_socket()), name_(sys::bind_to_fresh_name(socket_.get())) {
  sys::start_listening(socket_.get());
}

}  // namespace casemate::conformance
