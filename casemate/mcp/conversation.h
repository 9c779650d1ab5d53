#pragma once

// The second part of a sandbox's key, as an MCP server chooses it: never a model, and no client
// either.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/tool/caller_context.h"

namespace casemate::mcp {

// For the wiring of a tool that is served: the scope is fixed, the conversation that of the call
// which the calling thread runs for a `Server`. Outside such a call there is none, and then nothing
// runs.
CallerContext caller_context(std::string scope);

// The same conversation, for sinks and whatever else a tool calls on its own thread.
std::optional<std::string> current_conversation();

// One conversation: calls that share it share a sandbox. Immutable; whoever holds it keeps it
// alive.
class Conversation {
 public:
  using End = std::function<void(std::string_view thread_id)>;

  // With an id of its own, 128 random bits. It is no secret: nobody can ask for a sandbox by it.
  // `end` is told it once, when the last holder goes, on that thread.
  explicit Conversation(End end);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  const std::string& thread_id() const { return thread_id_; }

  // While it lives, this thread's calls belong to the conversation, which must outlive it.
  class Current {
   public:
    explicit Current(const Conversation& conversation);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Conversation* before_;
  };

 private:
  const std::string thread_id_;
  const End end_;
};

}  // namespace casemate::mcp
