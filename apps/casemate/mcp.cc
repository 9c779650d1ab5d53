// `casemate mcp`.

#include <malloc.h>

#include <optional>
#include <utility>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/mcp_directories.h"
#include "apps/casemate/mcp_http.h"
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
namespace {

// Answers may take tens of megabytes each and a server lives for long: what it does not use goes
// back to the system. By itself glibc raises the size from which it does that to that of what was
// freed (mallopt(3)), and keeps an arena a thread.
void give_memory_back() {
#ifdef __GLIBC__
  constexpr int kOwnMappingBytes = 256 * 1024;
  constexpr int kArenas = 2;
  mallopt(M_MMAP_THRESHOLD, kOwnMappingBytes);
  mallopt(M_ARENA_MAX, kArenas);
#endif
}

}  // namespace

int mcp_verb(const ParsedLine& line, const Config& config) {
  // Before any other thread: signals are its.
  const StopRequests stop;
  give_memory_back();
  ServerLog server_log(line.has("-v") ? LogLevel::debug : LogLevel::warning);
  const Log log = server_log.log();
  Backends backends;
  std::optional<McpOptions> options;
  std::optional<mcp::HttpOptions> http;
  images::ImageReference image;
  read_line(line, [&](const ParsedLine& given) {
    refuse_operands(given);
    McpOptions read = read_mcp_options(given, host_variable);
    backends =
        make_backends(config, log, read.sandbox.server_names, read.sandbox.backend.value_or(""));
    refuse_unknown_backend(read.sandbox, backends);
    settle_image(given, config, read.sandbox);
    image = images::parse_image_reference(read.sandbox.image);
    http = mcp_http_options(given, log);
    check_directories(read, mcp_http_files(given));
    options = std::move(read);
  });
  add_host_tools(options->sandbox, config.host_tools);
  // Of an engine's images only the engine knows.
  if (options->sandbox.check && options->sandbox.backend != kDockerBackendName) {
    images::ImageStore(image_store_options(config, log)).check(image, {});
  }
  // A server that is refused tries no backend either.
  check_mcp_server(*options, backends, log);
  if (options->sandbox.check) return 0;
  options->sandbox.backend = backend_to_serve(*options, backends, log);
  mcp::ServerOptions server = make_mcp_server(*options, backends, log);
  server.version = kVersion;
  server_log.say(in_force(*options));
  if (http) {
    serve_over_http(std::move(server), std::move(*http), stop.token(),
                    [&server_log](std::string_view text) { server_log.say(text); });
  } else if (mcp::serve(std::move(server), {}, stop.token()) == mcp::StdioEnd::output_closed) {
    return kExitOutputClosed;  // whoever notices it first
  }
  return stop.exit_status().value_or(0);
}

}  // namespace casemate::app
