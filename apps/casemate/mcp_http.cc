#include "apps/casemate/mcp_http.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "apps/casemate/values.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

constexpr std::chrono::milliseconds kLastAnswers{500};
// For calls that were stopped to end, with their sandboxes.
constexpr std::chrono::seconds kLastCalls{5};

[[noreturn]] void refuse_place(std::string_view text) {
  throw InvalidArgument(
      fmt::format("--http '{}' is no HOST:PORT", escape_for_display(text)),
      "an address or name of this machine and a port: 127.0.0.1:8080, [::1]:8080");
}

// "127.0.0.1:8080", "[::1]:8080".
std::pair<std::string, std::uint16_t> parse_place(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse_place(text);
  std::string host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') refuse_place(text);
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    refuse_place(text);
  }
  const auto port = parse_count("--http", text.substr(colon + 1), 0, 65535);
  return {std::move(host), static_cast<std::uint16_t>(port)};
}

}  // namespace

std::optional<mcp::HttpOptions> mcp_http_options(const ParsedLine& line, const Log& log) {
  if (!line.has("--http")) {
    for (const OptionSpec& option : kMcpHttpOptions) {
      if (!line.typed(option.name)) continue;
      throw InvalidArgument(
          fmt::format("{} says something of HTTP, which is not served", option.name),
          "add --http HOST:PORT, or leave it out");
    }
    return std::nullopt;
  }
  mcp::HttpOptions options;
  mcp::HttpServerOptions& http = options.http;
  std::tie(http.host, http.port) = parse_place(line.value_or("--http", ""));
  http.also_named = line.values("--http-name");
  if (line.has("--token-file")) {
    http.tokens = std::make_shared<mcp::TokenFile>(line.value_or("--token-file", ""), log);
  }
  http.tls_certificate = line.value_or("--tls-cert", "");
  http.tls_key = line.value_or("--tls-key", "");
  if (http.tls_certificate.empty() != http.tls_key.empty()) {
    throw InvalidArgument("--tls-cert and --tls-key go together", "give both or neither");
  }
  http.log = log;
  mcp::HttpServer::check(http);
  return options;
}

std::vector<ServerFile> mcp_http_files(const ParsedLine& line) {
  std::vector<ServerFile> files;
  for (const char* option : {"--token-file", "--tls-cert", "--tls-key"}) {
    if (line.has(option)) files.push_back({option, line.value_or(option, "")});
  }
  return files;
}

void serve_over_http(mcp::ServerOptions served, mcp::HttpOptions options,
                     const std::stop_token& stop,
                     const std::function<void(std::string_view)>& say) {
  const bool is_open = options.http.tokens == nullptr;
  const bool is_plain = options.http.tls_certificate.empty();
  const mcp::Server server(std::move(served));
  mcp::HttpFront front(server, std::move(options));
  say(fmt::format("serving {}", front.url()));
  if (is_open) {
    say("no --token-file: every user and program of this machine may run programs here");
  } else if (is_plain) {
    say("no --tls-cert: beyond this machine, tokens travel for all to read");
  }
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait(lock, stop, [] { return false; });
  front.stop(kLastAnswers);
  server.stop(kLastCalls);
}

}  // namespace casemate::app
