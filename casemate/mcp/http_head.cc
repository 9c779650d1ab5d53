#include "casemate/mcp/http_head.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace casemate::mcp {
namespace {

struct Known {
  std::string_view name;
  // Fields that are lists may come in several lines, which then read as one.
  bool is_list;
};

// Beside those that begin with "mcp-".
constexpr std::array kKnown{
    Known{"accept", true}, Known{"authorization", false}, Known{"content-type", false},
    Known{"host", false},  Known{"last-event-id", false}, Known{"origin", false},
};
constexpr std::string_view kOurPrefix = "mcp-";

char lower(char letter) noexcept {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool equals_ignoring_case(std::string_view left, std::string_view right) noexcept {
  return std::ranges::equal(left, right, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) noexcept {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Calls `use` with each trimmed part of a list; stops when it returns true, and returns that.
template <typename Use>
bool any_part(std::string_view list, char separator, Use use) {
  while (true) {
    const auto end = list.find(separator);
    if (use(trimmed(list.substr(0, end)))) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

bool is_port(std::string_view text) noexcept {
  return text.size() <= 5 &&
         std::ranges::all_of(text, [](char digit) { return digit >= '0' && digit <= '9'; });
}

// The host of "host", "host:port" or "[address]:port"; empty for what is none.
std::optional<std::string_view> host_of(std::string_view authority) noexcept {
  std::size_t end = 0;
  if (authority.starts_with('[')) {
    end = authority.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    ++end;
  } else {
    end = std::min(authority.find(':'), authority.size());
  }
  const auto host = authority.substr(0, end);
  const auto rest = authority.substr(end);
  if (host.empty() || (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1))))) {
    return std::nullopt;
  }
  return host;
}

// An address in `bytes` as inet_pton has it; the text of a Host may not be longer than an address.
template <std::size_t Size>
bool parse_address(int family, std::string_view text, std::array<std::uint8_t, Size>& bytes) {
  std::array<char, INET6_ADDRSTRLEN> copy{};
  if (text.size() >= copy.size()) return false;
  std::ranges::copy(text, copy.begin());
  return std::strlen(copy.data()) == text.size() &&
         inet_pton(family, copy.data(), bytes.data()) == 1;
}

enum class Literal { none, loopback, other };

Literal literal_of(std::string_view host) noexcept {
  if (host.starts_with('[') && host.ends_with(']')) {
    std::array<std::uint8_t, 16> bytes{};
    if (!parse_address(AF_INET6, host.substr(1, host.size() - 2), bytes)) return Literal::none;
    std::array<std::uint8_t, 16> loopback{};
    loopback.back() = 1;
    if (bytes == loopback) return Literal::loopback;
    // ::ffff:127.0.0.1
    std::array<std::uint8_t, 12> mapped{};
    mapped[10] = mapped[11] = 0xff;
    const bool is_mapped = std::equal(mapped.begin(), mapped.end(), bytes.begin());
    return is_mapped && bytes[12] == 127 ? Literal::loopback : Literal::other;
  }
  std::array<std::uint8_t, 4> bytes{};
  if (!parse_address(AF_INET, host, bytes)) return Literal::none;
  return bytes[0] == 127 ? Literal::loopback : Literal::other;
}

std::string_view without_dot(std::string_view host) noexcept {
  if (host.size() > 1 && host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool is_named(std::string_view host, const HttpNames& names) {
  return std::ranges::any_of(names.also, [name = without_dot(host)](std::string_view ours) {
    return equals_ignoring_case(name, ours);
  });
}

bool is_ours(std::string_view host, const HttpNames& names) {
  if (is_loopback_name(host) || is_named(host, names)) return true;
  return !names.loopback_only && literal_of(host) != Literal::none;
}

// Of a page: where many addresses are ours, only the very one that it asks is, and never loopback,
// which is where the browser runs.
bool is_page_of_ours(std::string_view page, std::string_view host, const HttpNames& names) {
  if (is_named(page, names)) return true;
  return names.loopback_only ? is_loopback_name(page)
                             : equals_ignoring_case(without_dot(page), without_dot(host));
}

// The authority of "scheme://authority", as browsers write an origin.
std::optional<std::string_view> authority_of_origin(std::string_view origin) noexcept {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.size() > scheme.size() &&
        equals_ignoring_case(origin.substr(0, scheme.size()), scheme)) {
      return origin.substr(scheme.size());
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> HttpHead::field(std::string_view lower_case_name) const {
  const auto found = fields.find(lower_case_name);
  if (found == fields.end()) return std::nullopt;
  return found->second;
}

void HttpHead::add(std::string_view name, std::string_view value) {
  std::string key(name);
  std::ranges::transform(key, key.begin(), lower);
  const auto known = std::ranges::find(kKnown, std::string_view(key), &Known::name);
  if (known == kKnown.end() && !key.starts_with(kOurPrefix)) return;
  const auto [place, is_new] = fields.try_emplace(key, trimmed(value));
  if (is_new) return;
  if (known != kKnown.end() && known->is_list) {
    place->second.append(", ").append(trimmed(value));
  } else {
    repeated.push_back(std::move(key));
  }
}

bool is_loopback_name(std::string_view host) noexcept {
  return equals_ignoring_case(without_dot(host), "localhost") ||
         literal_of(host) == Literal::loopback;
}

std::optional<HttpRefusal> check_names(const HttpHead& head, const HttpNames& names) {
  if (!head.repeated.empty()) {
    return HttpRefusal{400, "a field that may come once came more than once"};
  }
  const auto authority = head.field("host");
  const auto host = authority ? host_of(*authority) : std::nullopt;
  if (!host) return HttpRefusal{400, "a Host field with a host name is missing"};
  if (!is_ours(*host, names)) {
    return HttpRefusal{403, names.loopback_only
                                ? "the Host field names another than this machine's loopback"
                                : "the Host field names no host that this server serves"};
  }
  if (const auto origin = head.field("origin")) {
    const auto authority_of_page = authority_of_origin(*origin);
    const auto page = authority_of_page ? host_of(*authority_of_page) : std::nullopt;
    if (!page || !is_page_of_ours(*page, *host, names)) {
      return HttpRefusal{403, "pages of that Origin may not use this server"};
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> bearer_token(const HttpHead& head) {
  constexpr std::string_view kScheme = "bearer ";
  const auto value = head.field("authorization");
  if (!value || value->size() <= kScheme.size() ||
      !equals_ignoring_case(value->substr(0, kScheme.size()), kScheme)) {
    return std::nullopt;
  }
  const auto token = trimmed(value->substr(kScheme.size()));
  if (token.empty()) return std::nullopt;
  return token;
}

std::optional<HttpRefusal> check_form(const HttpHead& head, std::string_view path) {
  const std::string_view target = head.target;
  if (target.substr(0, target.find('?')) != path) {
    return HttpRefusal{404, "there is nothing here; the endpoint is " + std::string(path)};
  }
  const bool posts = head.method == "POST";
  const bool gets = head.method == "GET";
  if (!posts && !gets && head.method != "DELETE") {
    return HttpRefusal{405, "this endpoint takes POST, GET and DELETE"};
  }
  const auto accept = head.field("accept").value_or("*/*");
  if (posts && !(accepts(accept, "application/json") && accepts(accept, "text/event-stream"))) {
    return HttpRefusal{406, "Accept has to list application/json and text/event-stream"};
  }
  if (gets && !accepts(accept, "text/event-stream")) {
    return HttpRefusal{406, "Accept has to list text/event-stream"};
  }
  if (posts) {
    const auto type = head.field("content-type").value_or("");
    if (!equals_ignoring_case(trimmed(type.substr(0, type.find(';'))), "application/json")) {
      return HttpRefusal{415, "Content-Type has to be application/json"};
    }
  }
  return std::nullopt;
}

bool accepts(std::string_view ranges, std::string_view type) {
  const std::string any_of_kind = std::string(type.substr(0, type.find('/'))) + "/*";
  return any_part(ranges, ',', [&](std::string_view range) {
    const auto name = trimmed(range.substr(0, range.find(';')));
    if (name != "*/*" && !equals_ignoring_case(name, any_of_kind) &&
        !equals_ignoring_case(name, type)) {
      return false;
    }
    const bool refused = any_part(range, ';', [](std::string_view parameter) {
      if (parameter.size() < 3 || !equals_ignoring_case(parameter.substr(0, 2), "q=")) return false;
      return parameter.substr(2).find_first_not_of("0.") == std::string_view::npos;
    });
    return !refused;
  });
}

}  // namespace casemate::mcp
