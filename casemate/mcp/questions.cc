#include "casemate/mcp/questions.h"

#include <algorithm>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/json.h"

namespace casemate::mcp {

using Clock = std::chrono::steady_clock;

std::optional<std::string> QuestionRegistry::add(Questions questions, Share share) {
  if (serialise_json(questions.answers).size() > kMaxAnswerBytes) return std::nullopt;
  std::string state = random_hex(16);
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [now](const auto& entry) { return entry.second.until <= now; });
  const auto of_caller =
      static_cast<std::size_t>(std::ranges::count_if(open_, [&questions](const auto& entry) {
        return entry.second.questions.identity == questions.identity;
      }));
  if (open_.size() >= kMaxOpen || of_caller >= part_of(kMaxOpen, share)) return std::nullopt;
  open_.emplace(sha256_hex(state), Open{std::move(questions), now + kOpenFor});
  return state;
}

std::optional<Questions> QuestionRegistry::take(std::string_view state, std::string_view identity,
                                                std::string_view request_digest) {
  const std::string digest = sha256_hex(state);
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(digest);
  if (found == open_.end() || found->second.questions.identity != identity ||
      found->second.questions.request_digest != request_digest ||
      found->second.until <= Clock::now()) {
    return std::nullopt;
  }
  Questions questions = std::move(found->second.questions);
  open_.erase(found);
  return questions;
}

}  // namespace casemate::mcp
