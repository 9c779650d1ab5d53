#pragma once

// What stateless clients were asked and have to be recognised by when they come back.

#include <boost/json/object.hpp>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "casemate/mcp/share.h"

namespace casemate::mcp {

// Of one request that was answered with questions.
struct Questions {
  // Who asked for what: the same request has the same digest.
  std::string identity{};
  std::string request_digest{};
  // That may be answered now, and what was answered before.
  std::set<std::string, std::less<>> keys{};
  boost::json::object answers{};
};

// May be used from several threads. A state is 128 random bits, kept as a digest, good once, for
// the caller and the request that it was given for, and for ten minutes. So nothing that a client
// sends stands for an answer to a question that it was not asked.
class QuestionRegistry {
 public:
  static constexpr std::size_t kMaxOpen = 256;
  static constexpr std::size_t kMaxAnswerBytes = 64 * 1024;
  static constexpr std::chrono::minutes kOpenFor{10};

  // Absent when there are too many, of all or of that caller, or the answers are too much.
  std::optional<std::string> add(Questions questions, Share share);
  // Absent for a state that is unknown, was used, has expired, or is another's or for another
  // request.
  std::optional<Questions> take(std::string_view state, std::string_view identity,
                                std::string_view request_digest);

 private:
  struct Open {
    Questions questions;
    std::chrono::steady_clock::time_point until;
  };
  std::mutex mutex_;
  std::map<std::string, Open, std::less<>> open_;
};

}  // namespace casemate::mcp
