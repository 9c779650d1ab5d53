#include "casemate/guest/agent/doors/response_head.h"

#include <algorithm>
#include <utility>

namespace casemate::guest {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n";

bool is_digit(char each) { return each >= '0' && each <= '9'; }

// The status of an answer's first line, or 0 when it is none.
int status_of(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.";
  if (line.size() < 12 || !line.starts_with(kVersion) || !is_digit(line[7]) || line[8] != ' ') {
    return 0;
  }
  int status = 0;
  for (const char each : line.substr(9, 3)) {
    if (!is_digit(each)) return 0;
    status = status * 10 + (each - '0');
  }
  return status;
}

bool says_how_the_connection_goes_on(std::string_view line) {
  std::string name(line.substr(0, std::min(line.find(':'), line.size())));
  for (char& each : name) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  return name == "connection" || name == "keep-alive" || name == "proxy-connection";
}

// `head` with its empty line.
std::string with_close(std::string_view head) {
  std::string text;
  while (true) {
    const std::size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (line.empty()) break;
    if (says_how_the_connection_goes_on(line)) continue;
    text += line;
    text += "\r\n";
  }
  return text + "Connection: close\r\n\r\n";
}

}  // namespace

void ResponseHead::put(std::string_view bytes) {
  if (broken_) return;
  if (passed_) {
    ready_ += bytes;
    return;
  }
  held_ += bytes;
  pass_heads();
}

void ResponseHead::pass_heads() {
  while (!passed_) {
    const std::size_t end = held_.find(kEnd);
    if (end == std::string::npos || end > kMaxResponseHead) {
      broken_ = held_.size() > kMaxResponseHead;
      return;
    }
    const std::string_view head = std::string_view(held_).substr(0, end + kEnd.size());
    const int status = status_of(head.substr(0, head.find("\r\n")));
    // 101 would take the connection away from HTTP; nobody was asked for that.
    if (status < 100 || status == 101) {
      broken_ = true;
      return;
    }
    passed_ = status >= 200;
    ready_ += passed_ ? with_close(head) : std::string(head);
    held_.erase(0, head.size());
  }
  ready_ += held_;
  held_.clear();
  held_.shrink_to_fit();
}

std::string ResponseHead::take() {
  if (!ready_.empty()) began_ = true;
  return std::exchange(ready_, {});
}

}  // namespace casemate::guest
