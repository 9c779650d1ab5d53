#include "casemate/guest/agent/keeper_words.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

constexpr std::size_t kMostLastWords = 400;

}  // namespace

ssize_t receive_report(int socket, AgentReport& report, pid_t& sender) {
  iovec part{.iov_base = &report, .iov_len = sizeof report};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = sys::receive_patiently(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS) {
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(head), sizeof credentials);
    sender = credentials.pid;
  }
  return count;
}

std::string last_words(int said) {
  std::string text(64 * 1024, '\0');
  const off_t size = lseek(said, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t count = size < 0 ? -1 : pread(said, text.data(), text.size(), from);
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  if (text.size() > kMostLastWords) text.erase(0, text.size() - kMostLastWords);
  return text.empty() ? "the container's runtime failed and did not say why" : text;
}

}  // namespace casemate::guest
