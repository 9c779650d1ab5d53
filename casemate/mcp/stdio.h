#pragma once

// MCP over standard input and output: one message a line.

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "casemate/mcp/server.h"

namespace casemate::mcp {

struct StdioOptions {
  int in = 0;
  int out = 1;
  // What waits for a client that does not read. Over it nothing more is read of the input, calls
  // and reads of artifacts that wait are not begun, and notifications are dropped. Answers to calls
  // that run come on top, so many as may run, and one artifact.
  std::size_t max_pending_bytes = 1024 * 1024;
};

enum class StdioEnd : std::uint8_t {
  end_of_input,
  // The client closed our output.
  output_closed,
  stopped,
};

// Serves one client until its input ends, its output is closed, or `stop` is requested; then its
// peer is closed. Returns within a second of either: at the end of the input, requests that were
// read already and are quick (a third of a second for all of them) are still answered, and what
// runs longer is stopped without an answer.
//
// One thread, the caller's, reads and writes; no tool runs on it, and it never blocks but in poll.
// It writes to `out` at most 4,096 bytes at a time, which a pipe that poll calls ready takes
// without blocking (pipe(7)). Descriptors keep their flags. The host must have SIGPIPE ignored or
// blocked: a client may close our output at any time.
//
// A line longer than a message may be is passed over without being kept, and answered with an
// error.
StdioEnd serve_stdio(const Server& server, const StdioOptions& options = {},
                     const std::stop_token& stop = {});

// Serves tools of a host over standard input and output: `Server`, `serve_stdio`, `Server::stop`.
// Throws what `Server` does.
StdioEnd serve(ServerOptions options, const StdioOptions& stdio = {},
               const std::stop_token& stop = {});

}  // namespace casemate::mcp
