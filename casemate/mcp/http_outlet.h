#pragma once

// The messages of one POST on their way into its response.

#include <memory>
#include <mutex>
#include <optional>

#include "casemate/mcp/http_events.h"
#include "casemate/mcp/outlet.h"

namespace casemate::mcp {

// Writes into an `EventStream`. The last reply goes in together with the end, so that a reader can
// tell an answer of one message from a stream of several.
class StreamOutlet final : public Outlet {
 public:
  explicit StreamOutlet(std::shared_ptr<EventStream> stream);

  void send(Outgoing message) noexcept override;
  void finished() noexcept override;

 private:
  const std::shared_ptr<EventStream> stream_;
  std::mutex mutex_;
  std::optional<Outgoing> last_reply_;
};

}  // namespace casemate::mcp
