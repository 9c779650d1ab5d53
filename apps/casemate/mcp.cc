// `casemate mcp`.

#include <optional>
#include <utility>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/mcp_options.h"
#include "apps/casemate/mcp_server.h"
#include "apps/casemate/server_log.h"
#include "apps/casemate/stop_requests.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/version.h"
#include "apps/casemate/wiring.h"
#include "casemate/images/reference.h"
#include "casemate/images/store.h"
#include "casemate/mcp/stdio.h"

namespace casemate::app {

int mcp_verb(const ParsedLine& line, const Config& config) {
  // Before any other thread: signals are its.
  const StopRequests stop;
  ServerLog server_log(line.has("-v") ? LogLevel::debug : LogLevel::warning);
  const Log log = server_log.log();
  Backends backends;
  std::optional<McpOptions> options;
  images::ImageReference image;
  read_line(line, [&](const ParsedLine& given) {
    refuse_operands(given);
    McpOptions read = read_mcp_options(given, host_variable);
    backends = make_backends(config, log, read.sandbox.server_names);
    refuse_unknown_backend(read.sandbox, backends);
    image = images::parse_image_reference(read.sandbox.image);
    options = std::move(read);
  });
  add_host_tools(options->sandbox, config.host_tools);
  if (options->sandbox.check) {
    images::ImageStore(image_store_options(config, log)).check(image, {});
    check_mcp_server(*options, backends, log);
    return 0;
  }
  mcp::ServerOptions server = make_mcp_server(*options, backends, log);
  server.version = kVersion;
  server_log.say(in_force(*options, backends));
  const mcp::StdioEnd end = mcp::serve(std::move(server), {}, stop.token());
  // Whoever notices it first.
  if (end == mcp::StdioEnd::output_closed) return kExitOutputClosed;
  return stop.exit_status().value_or(0);
}

}  // namespace casemate::app
