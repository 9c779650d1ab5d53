#pragma once

// The head of an HTTP request, as a stranger sent it, and what a server says to it before it reads
// a body: pure rules, no socket.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::mcp {

// An answer that ends a request. `reason` is for the caller: one line, valid UTF-8, it repeats
// nothing that the request said.
struct HttpRefusal {
  unsigned status = 400;
  std::string reason{};
};

// The fields that count here (what HTTP needs, and all that begin with "mcp-"), under their
// lower-case names; others are dropped unread. One of them that came more than once and is no list
// by its nature stands in `repeated`.
struct HttpHead {
  std::string method{};
  std::string target{};
  std::map<std::string, std::string, std::less<>> fields{};
  std::vector<std::string> repeated{};

  // Empty when the field did not come.
  std::optional<std::string_view> field(std::string_view lower_case_name) const;
  // Keeps a field that counts; the name in any letter case.
  void add(std::string_view name, std::string_view value);
};

// Who may ask, by the names he uses for us.
struct HttpNames {
  // Bound to a loopback address: any loopback spelling is our name, whatever the port (a port may
  // have been forwarded), and nothing else is. A page of a stranger's whose name leads here, DNS
  // rebinding, sends its own name.
  bool loopback_only = true;
  // Names by which clients may reach us besides, in lower case and without a port. When not
  // `loopback_only` every IP literal is one too: a browser that was led here sends a name. Of an
  // Origin only that literal counts which the Host has: any stranger may have a page at an address.
  std::vector<std::string> also{};
};

// True for localhost, 127.0.0.0/8 and ::1, as a Host field spells them without the port (an IPv6
// address in brackets); letter case and one trailing dot do not count.
bool is_loopback_name(std::string_view host) noexcept;

// Host and Origin against `names`: 400 without Host (or with two), 403 for another's name. Origin
// is what browsers send; its absence is fine. Its scheme has to be http or https.
std::optional<HttpRefusal> check_names(const HttpHead& head, const HttpNames& names);

// The token of "Authorization: Bearer TOKEN"; empty when there is none of that form.
std::optional<std::string_view> bearer_token(const HttpHead& head);

// Path, method, Accept and Content-Type: 404 for another path than `path`, 405 for a method that is
// none of ours, 406 when the client cannot read what we may send (application/json and
// text/event-stream for POST, the latter for GET), 415 when a body is declared to be no JSON.
std::optional<HttpRefusal> check_form(const HttpHead& head, std::string_view path);

// True when a list of media ranges (an Accept field) admits `type`, "text/event-stream" say. A
// range of weight 0 does not.
bool accepts(std::string_view ranges, std::string_view type);

}  // namespace casemate::mcp
