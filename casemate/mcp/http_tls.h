#pragma once

#include <boost/asio/ssl/context.hpp>
#include <string>

namespace casemate::mcp {

// A server's side of TLS 1.2 and 1.3, from files in PEM. Throws `InvalidArgument` for one that
// cannot be read, is none, or does not belong to the other.
boost::asio::ssl::context make_tls(const std::string& certificate, const std::string& key);

}  // namespace casemate::mcp
