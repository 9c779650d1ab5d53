#pragma once

// The questions of one call to its client, in the manner of its revision. For mcp/ alone.

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/mcp/questions.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {

// Used by the thread that runs the call.
class Asking {
 public:
  // Reads the answers that the request brings. Throws `RequestRefused` for a state that is none.
  Asking(const Request& request, RunningCall& call, Exchange& exchange);

  // As `ask_client` (ask_client.h).
  std::optional<boost::json::object> ask(std::string_view key, std::string_view method,
                                         const boost::json::object& params);

  // What the request is answered with if there are open questions; absent: with the result. Throws
  // `RequestRefused` where it failed and the client could not be asked for something.
  enum class Outcome : std::uint8_t { done, failed };
  std::optional<std::string> instead_of_result(Outcome outcome);

  // While it lives, `ask_client` asks for that call on this thread.
  class Current {
   public:
    explicit Current(Asking& asking);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Asking* before_;
  };

 private:
  std::optional<boost::json::object> ask_now(std::string_view method,
                                             const boost::json::object& params);
  std::string request_digest() const;

  const Request& request_;
  RunningCall& call_;
  Exchange& exchange_;
  // Of the stateless revision.
  boost::json::object answers_;
  boost::json::object open_;
  boost::json::object missing_;
};

}  // namespace casemate::mcp
