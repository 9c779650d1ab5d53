#pragma once

// For tests: a name server that knows a few names and remembers every question. Needs port 53 of a
// network of the test's own (own_network.h), whose resolv.conf leads to it.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/no_throw.h"

namespace casemate {

class NameServer {
 public:
  // Names in lower case and their IPv4 addresses; anything else is no such name.
  explicit NameServer(std::map<std::string, std::string> names) : names_(std::move(names)) {
    socket_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(53);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!socket_ || bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
      sys::throw_errno("bind 127.0.0.1:53");
    }
    thread_ = std::thread([this] { no_throw([this] { serve(); }); });
  }
  ~NameServer() {
    sys::raise_event(stopped_.get());
    thread_.join();
  }
  NameServer(const NameServer&) = delete;
  NameServer& operator=(const NameServer&) = delete;

  // In the order of the questions, in lower case.
  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  static constexpr std::size_t kHeader = 12;

  void serve() {
    while (true) {
      std::array<pollfd, 2> entries{pollfd{stopped_.get(), POLLIN, 0},
                                    pollfd{socket_.get(), POLLIN, 0}};
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) return;
      std::array<char, 1500> buffer;
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t got = recvfrom(socket_.get(), buffer.data(), buffer.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
      if (got < static_cast<ssize_t>(kHeader)) continue;
      const std::string answer = answer_to({buffer.data(), static_cast<std::size_t>(got)});
      sendto(socket_.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from),
             size);
    }
  }

  // RFC 1035, section 4: the header, the question as it came, and an address where there is one.
  std::string answer_to(std::string_view query) {
    std::string name;
    std::size_t at = kHeader;
    while (at < query.size() && query[at] != 0) {
      const auto length = static_cast<std::size_t>(static_cast<unsigned char>(query[at]));
      if (!name.empty()) name += '.';
      name += query.substr(at + 1, length);
      at += length + 1;
    }
    for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
    const std::string_view question = query.substr(kHeader, at + 5 - kHeader);
    const bool wants_ipv4 = question.substr(question.size() - 4, 2) == std::string_view("\0\1", 2);
    const auto known = names_.find(name);
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(name);
    }
    const bool has = known != names_.end() && wants_ipv4;
    std::string answer(query.substr(0, 2));
    answer += '\x81';
    answer += known == names_.end() ? '\x83' : '\x80';
    answer += std::string_view("\0\1", 2);
    answer += std::string_view(has ? "\0\1" : "\0\0", 2);
    answer += std::string_view("\0\0\0\0", 4);
    answer += question;
    if (has) {
      answer += std::string_view("\xc0\x0c\0\1\0\1\0\0\0\0\0\4", 12);
      in_addr address{};
      inet_pton(AF_INET, known->second.c_str(), &address);
      answer.append(reinterpret_cast<const char*>(&address), sizeof address);
    }
    return answer;
  }

  const std::map<std::string, std::string> names_;
  sys::UniqueFd socket_;
  sys::UniqueFd stopped_ = sys::make_event();
  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

}  // namespace casemate
