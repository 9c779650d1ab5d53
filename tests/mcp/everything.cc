// The server that the public conformance suites are run against: our module with the tools, prompts
// and resources that they ask for by name, over HTTP with `casemate mcp`'s options for it, or over
// standard input and output.

#include <exception>
#include <span>
#include <utility>

#include "apps/casemate/console.h"
#include "apps/casemate/mcp_http.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/stop_requests.h"
#include "casemate/mcp/stdio.h"
#include "tests/mcp/everything_tools.h"

namespace casemate::mcp {
namespace {

int serve_everything(std::span<const char* const> words) {
  const app::StopRequests stop;
  const Log log = [](LogLevel, std::string_view text) {
    app::write_all(2, std::string(text) + "\n");
  };
  const auto http = app::mcp_http_options(app::parse_line(words, app::kMcpHttpOptions), log);
  ServerOptions options;
  options.name = "mcp-everything";
  options.tools = everything::tools();
  for (ServedTool& one : everything::asking_tools()) options.tools.push_back(std::move(one));
  options.methods = everything::methods();
  options.more_capabilities = everything::kCapabilities;
  options.log = log;
  if (http) {
    app::serve_over_http(std::move(options), *http, stop.token(),
                         [&log](std::string_view text) { log(LogLevel::info, text); });
  } else {
    serve(std::move(options), {}, stop.token());
  }
  return stop.exit_status().value_or(0);
}

}  // namespace
}  // namespace casemate::mcp

int main(int count, char** words) {
  try {
    casemate::app::prepare_standard_streams();
    return casemate::mcp::serve_everything(
        {words + 1, static_cast<std::size_t>(count > 0 ? count - 1 : 0)});
  } catch (const std::exception& failure) {
    return casemate::app::report(casemate::app::in_words_of_the_command_line(failure),
                                 casemate::app::OutputFormat::streams);
  }
}
