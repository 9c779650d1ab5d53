// Entries of an egress allowlist: one spelling each, and nothing that covers more than it says.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/host_pattern.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

bool is_address(const std::string& text) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

void check_name(const std::string& name) {
  require(name.size() <= 253, "a name is at most 253 bytes");
  Input labels(name);
  for (bool last = false; !last;) {
    last = labels.rest().find('.') == std::string_view::npos;
    const std::string_view label = labels.until('.');
    require(!label.empty() && label.size() <= 63, "a label is 1 to 63 bytes");
    require(label.front() != '-' && label.back() != '-', "no hyphen at a label's ends");
    require(
        std::ranges::all_of(
            label,
            [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }),
        "a label is lower-case letters, digits and hyphens");
  }
  struct in_addr loose{};
  require(inet_aton(name.c_str(), &loose) == 0, "no name is an address to an old resolver");
}

}  // namespace

void fuzz_host_patterns(std::string_view bytes) {
  std::optional<HostPattern> pattern;
  try {
    pattern = HostPattern::parse(bytes);
  } catch (const InvalidArgument& refusal) {
    require(is_valid_utf8(refusal.message()) && refusal.message().size() < 2048,
            "a refusal is text, and bounded");
    return;
  }
  require(HostPattern::parse(pattern->text()) == *pattern, "the canonical entry is the same entry");
  require(!pattern->port() || *pattern->port() != 0, "there is no port 0");
  require(bytes.find_first_of(std::string_view("/,@ \t\n\0", 7)) == std::string_view::npos,
          "an entry is a host and nothing else");
  if (pattern->form() == HostPattern::Form::address) {
    require(is_address(pattern->host()), "an address is one");
    return;
  }
  check_name(pattern->host());
  if (pattern->form() == HostPattern::Form::suffix) {
    require(bytes.starts_with("*."), "a suffix was asked for as one");
    require(pattern->host().find('.') != std::string::npos, "no suffix is a single label");
  } else {
    require(bytes.find('*') == std::string_view::npos, "no name has a star");
  }
}

}  // namespace casemate::fuzz
