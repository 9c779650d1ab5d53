#include "casemate/mcp/conversation.h"

#include <utility>

#include "casemate/base/digest.h"

namespace casemate::mcp {
namespace {

// A tool asks for its conversation on the thread that runs it (tool/caller_context.h), with nothing
// but that thread to tell one call from another.
thread_local const Conversation* current = nullptr;

}  // namespace

std::optional<std::string> current_conversation() {
  if (current == nullptr) return std::nullopt;
  return current->thread_id();
}

CallerContext caller_context(std::string scope) {
  return {[scope = std::move(scope)] { return scope; }, [] { return current_conversation(); }};
}

Conversation::Conversation(End end) : thread_id_("mcp-" + random_hex(16)), end_(std::move(end)) {}

Conversation::~Conversation() {
  if (end_) end_(thread_id_);
}

Conversation::Current::Current(const Conversation& conversation)
    : before_(std::exchange(current, &conversation)) {}

Conversation::Current::~Current() { current = before_; }

}  // namespace casemate::mcp
