#include "casemate/host_tools/session.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

namespace casemate {
namespace {

// Far below what the kernel takes of one variable (128 KiB).
constexpr std::size_t kMaxNamesBytes = 32 * 1024;

// No ASCII character that an identifier cannot have; the rest is for the program's side to judge.
bool may_be_identifier(std::string_view name) {
  return std::ranges::all_of(name, [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return byte >= 0x80 || byte == '_' || std::isalnum(byte) != 0;
  });
}

}  // namespace

HostToolSession::HostToolSession(std::shared_ptr<HostToolRegistry> registry,
                                 const HostToolRunOptions& options)
    : registry_(registry),
      run_(std::move(registry), options),
      channel_(run_, {.log = options.log}) {}

HostToolSession::~HostToolSession() { close(); }

std::map<std::string, std::string> HostToolSession::environment(const std::string& address) const {
  std::string names;
  for (const std::string& name : registry_->names()) {
    if (!may_be_identifier(name) || names.size() + 1 + name.size() > kMaxNamesBytes) continue;
    if (!names.empty()) names += ' ';
    names += name;
  }
  return {{"CASEMATE_HOST_TOOLS", address}, {"CASEMATE_HOST_TOOL_NAMES", names}};
}

void HostToolSession::close() noexcept {
  channel_.close();
  run_.close();
}

}  // namespace casemate
