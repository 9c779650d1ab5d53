#pragma once

// `casemate mcp` over HTTP: its options, and serving until a stop.

#include <array>
#include <functional>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "apps/casemate/mcp_directories.h"
#include "apps/casemate/option_parser.h"
#include "casemate/base/log.h"
#include "casemate/mcp/http.h"

namespace casemate::app {

inline constexpr auto kMcpHttpOptions = std::to_array<OptionSpec>({
    {"--http", "HOST:PORT", Repeat::refused, "standard input and output",
     "serve Streamable HTTP at http://HOST:PORT/mcp; HOST is an address of this machine, or a name "
     "of one; port 0 takes a free one, which the log names; a HOST that other machines reach needs "
     "--token-file",
     "--http 127.0.0.1:8080"},
    {"--http-name", "NAME", Repeat::allowed, "HOST, and loopback's names on loopback",
     "a host name by which clients reach this server, a proxy's say; requests that name another, "
     "and pages of another origin, are refused",
     "--http-name mcp.example.org"},
    {"--token-file", "FILE", Repeat::refused, "none: whoever reaches HOST may ask",
     "bearer tokens, one a line of 22 to 512 visible characters; each is a client of its own; read "
     "again when it changes",
     "--token-file tokens", ValueForm::path},
    {"--tls-cert", "FILE", Repeat::refused, "none: plain HTTP",
     "the certificate in PEM, with those of its issuers behind it; TLS 1.2 and 1.3",
     "--tls-cert server.pem --tls-key server.key", ValueForm::path},
    {"--tls-key", "FILE", Repeat::refused, "none", "the certificate's key in PEM",
     "--tls-cert server.pem --tls-key server.key", ValueForm::path},
});

// What the line says of HTTP; absent without --http. Throws `InvalidArgument` for values that
// cannot be, and for options of HTTP without --http: what serving would refuse, but that the place
// is taken. The token file is read here.
std::optional<mcp::HttpOptions> mcp_http_options(const ParsedLine& line, const Log& log);

// The files that the server would be run by: tokens, certificate, key.
std::vector<ServerFile> mcp_http_files(const ParsedLine& line);

// Listens until `stop`, after it has said where; then ends every session, lets what was answered
// reach its clients for at most half a second, and ends the server. Throws as `mcp::HttpFront`
// does.
void serve_over_http(mcp::ServerOptions served, mcp::HttpOptions options,
                     const std::stop_token& stop, const std::function<void(std::string_view)>& say);

}  // namespace casemate::app
