#include "casemate/guest/agent/doors/request_head.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "casemate/guest/agent/doors/authority.h"

namespace casemate::guest {
namespace {

constexpr std::uint16_t kHttpPort = 80;
constexpr std::string_view kLineEnd = "\r\n";
// Far above any body; so that sums with it stay in their type.
constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 62;

struct Refused {
  BadRequest bad;
};

[[noreturn]] void refuse(std::string_view why) { throw Refused{{why}}; }

bool is_letter(char each) { return (each >= 'A' && each <= 'Z') || (each >= 'a' && each <= 'z'); }
bool is_digit(char each) { return each >= '0' && each <= '9'; }

bool is_token_character(char each) {
  return is_letter(each) || is_digit(each) ||
         std::string_view("!#$%&'*+-.^_`|~").find(each) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_character);
}

bool is_visible(char each) { return each > 0x20 && each < 0x7f; }

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& each : lowered) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  return lowered;
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char each) { return each == ' ' || each == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

struct Field {
  std::string name;  // lower case
  std::string_view line;
  std::string_view value;
};

// Takes the next line off `rest`, without its end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find(kLineEnd);
  if (end == std::string_view::npos) refuse("a line does not end");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + kLineEnd.size());
  return line;
}

std::vector<Field> read_fields(std::string_view rest) {
  std::vector<Field> fields;
  while (true) {
    const std::string_view line = take_line(rest);
    if (line.empty()) break;
    if (fields.size() >= kMaxRequestHeaders) refuse("it has more than 128 header fields");
    if (line.front() == ' ' || line.front() == '\t') refuse("a header field is folded");
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
      refuse("a header field has no proper name");
    }
    const std::string_view value = trim(line.substr(colon + 1));
    const auto is_control = [](char each) {
      return (static_cast<unsigned char>(each) < 0x20 && each != '\t') || each == 0x7f;
    };
    if (std::ranges::any_of(value, is_control)) {
      refuse("a header field has a control character");
    }
    fields.push_back({lower(line.substr(0, colon)), line, value});
  }
  if (!rest.empty()) refuse("it goes on behind its empty line");
  return fields;
}

// The only field of that name. More than one is refused, also where all say the same.
const Field* only(const std::vector<Field>& fields, std::string_view name, std::string_view why) {
  const Field* found = nullptr;
  for (const Field& field : fields) {
    if (field.name != name) continue;
    if (found != nullptr) refuse(why);
    found = &field;
  }
  return found;
}

BodyLength read_body_length(const std::vector<Field>& fields, int minor_version) {
  const Field* length = only(fields, "content-length", "Content-Length is there twice");
  const Field* coding = only(fields, "transfer-encoding", "Transfer-Encoding is there twice");
  if (length != nullptr && coding != nullptr) {
    refuse("it has Content-Length and Transfer-Encoding");
  }
  BodyLength body;
  if (coding != nullptr) {
    if (minor_version == 0) refuse("HTTP/1.0 has no Transfer-Encoding");
    if (lower(coding->value) != "chunked") refuse("its Transfer-Encoding is not chunked");
    body.form = BodyLength::Form::chunked;
  } else if (length != nullptr) {
    const std::string_view digits = length->value;
    if (digits.empty() || digits.size() > 19 || !std::ranges::all_of(digits, is_digit)) {
      refuse("its Content-Length is not a number");
    }
    for (const char digit : digits) {
      body.bytes = body.bytes * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    if (body.bytes > kMaxLength) refuse("its Content-Length is not a number");
    body.form = BodyLength::Form::length;
  }
  return body;
}

// What is said between client and proxy only (RFC 9110, section 7.6.1), or would take the
// connection away from requests.
constexpr std::array<std::string_view, 9> kOfThisConnection = {
    "connection",          "proxy-connection", "keep-alive",     "te",  "upgrade",
    "proxy-authorization", "trailer",          "http2-settings", "host"};  // written anew

// Names that `Connection` may not take out of a request: it would become another one.
constexpr std::array<std::string_view, 3> kNeverDropped = {"host", "content-length",
                                                           "transfer-encoding"};

std::vector<std::string> dropped_names(const std::vector<Field>& fields) {
  std::vector<std::string> names(kOfThisConnection.begin(), kOfThisConnection.end());
  for (const Field& field : fields) {
    if (field.name != "connection" && field.name != "proxy-connection") continue;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string name = lower(trim(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (name.empty()) continue;
      if (!is_token(name)) refuse("its Connection names no header fields");
      if (std::ranges::find(kNeverDropped, name) != kNeverDropped.end()) {
        refuse("its Connection names a field that every reader needs");
      }
      names.push_back(name);
    }
  }
  return names;
}

struct RequestLine {
  std::string_view method;
  std::string_view target;
  int minor_version = 1;
};

RequestLine read_request_line(std::string_view line) {
  RequestLine read;
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    refuse("its first line is not a method, a target and a version");
  }
  read.method = line.substr(0, first);
  read.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(read.method)) refuse("its method is no word");
  if (version == "HTTP/1.0") {
    read.minor_version = 0;
  } else if (version != "HTTP/1.1") {
    refuse("its version is not HTTP/1.1 or HTTP/1.0");
  }
  if (read.target.empty() || !std::ranges::all_of(read.target, is_visible)) {
    refuse("its target is empty or has a space, a control character or one beyond ASCII");
  }
  return read;
}

// Reads the target into `request`; returns the path for the server.
std::string read_target(const RequestLine& line, ProxyRequest& request) {
  if (request.tunnel) {
    const auto authority = parse_authority(line.target);
    if (!authority || !authority->port) refuse("CONNECT needs host:port for its target");
    request.host = authority->host;
    request.port = *authority->port;
    return {};
  }
  constexpr std::string_view kScheme = "http://";
  if (lower(line.target.substr(0, kScheme.size())) != kScheme) {
    refuse(lower(line.target.substr(0, 8)) == "https://"
               ? "a proxy takes https only through CONNECT"
               : "its target is not http://host/path, as a proxy needs it");
  }
  const std::string_view rest = line.target.substr(kScheme.size());
  const std::size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  const std::string_view where = rest.substr(0, end);
  if (where.find('@') != std::string_view::npos) refuse("its target names a user");
  const auto authority = parse_authority(where);
  if (!authority) refuse("its target has no proper host");
  request.host = authority->host;
  request.port = authority->port.value_or(kHttpPort);
  std::string path(rest.substr(end));
  if (path.find('#') != std::string::npos) refuse("its target has a fragment");
  if (!path.starts_with('/')) path.insert(0, "/");
  return path;
}

void hold_against_host(const std::vector<Field>& fields, int minor_version, ProxyRequest& request) {
  const Field* host = only(fields, "host", "Host is there twice");
  if (host == nullptr) {
    // Clients leave it out of CONNECT, where it says nothing that the target does not.
    if (minor_version > 0 && !request.tunnel) refuse("Host is missing");
    return;
  }
  const auto said = parse_authority(host->value);
  if (!said) refuse("its Host is no host");
  const std::uint16_t port = said->port.value_or(request.tunnel ? request.port : kHttpPort);
  request.host_agrees = said->host == request.host && port == request.port;
}

ProxyRequest read(std::string_view head) {
  const RequestLine line = read_request_line(take_line(head));
  const std::vector<Field> fields = read_fields(head);
  ProxyRequest request;
  request.method = line.method;
  request.tunnel = line.method == "CONNECT";
  const std::string path = read_target(line, request);
  hold_against_host(fields, line.minor_version, request);
  request.body = read_body_length(fields, line.minor_version);
  if (request.tunnel) {
    if (request.body.form == BodyLength::Form::chunked || request.body.bytes != 0) {
      refuse("CONNECT has no body");
    }
    return request;
  }
  const std::vector<std::string> dropped = dropped_names(fields);
  std::string authority = authority_text(request.host, request.port);
  if (request.port == kHttpPort) authority.resize(authority.rfind(':'));
  request.forwarded_head = request.method + " " + path + " HTTP/1.1\r\nHost: " + authority + "\r\n";
  for (const Field& field : fields) {
    if (std::ranges::find(dropped, field.name) != dropped.end()) continue;
    request.forwarded_head += field.line.substr(0, field.name.size());
    request.forwarded_head += ": ";
    request.forwarded_head += field.value;
    request.forwarded_head += kLineEnd;
  }
  request.forwarded_head += "Connection: close\r\n\r\n";
  return request;
}

}  // namespace

std::variant<HeadEnd, BadRequest> find_head_end(std::string_view bytes) {
  if (!bytes.empty() && !is_token_character(bytes.front())) {
    return BadRequest{"it does not begin with a method"};
  }
  const std::string_view looked_at = bytes.substr(0, kMaxRequestHead);
  std::size_t line_start = 0;
  while (true) {
    const std::size_t feed = looked_at.find('\n', line_start);
    const std::string_view line = looked_at.substr(line_start, feed - line_start);
    const bool whole = feed != std::string_view::npos;
    // The last byte of what has come may be the first half of a line's end.
    const std::size_t turn = line.find('\r');
    if (whole ? turn != line.size() - 1 || line.empty()
              : turn != std::string_view::npos && turn != line.size() - 1) {
      return BadRequest{"a line does not end with CR LF"};
    }
    if (!whole) break;
    line_start = feed + 1;
    if (line == "\r") return HeadEnd{line_start};
  }
  if (bytes.size() >= kMaxRequestHead) return BadRequest{"its head has more than 32 KiB"};
  return HeadEnd{};
}

std::variant<ProxyRequest, BadRequest> read_request_head(std::string_view head) {
  try {
    return read(head);
  } catch (const Refused& refused) {
    return refused.bad;
  }
}

}  // namespace casemate::guest
