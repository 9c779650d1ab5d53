#include "casemate/mcp/http_tls.h"

#include <fmt/format.h>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::mcp {

boost::asio::ssl::context make_tls(const std::string& certificate, const std::string& key) {
  using boost::asio::ssl::context;
  if (certificate.empty() || key.empty()) {
    throw InvalidArgument("TLS needs a certificate and its key; one of them is missing",
                          "give both or neither");
  }
  context tls(context::tls_server);
  tls.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                  context::no_tlsv1 | context::no_tlsv1_1);
  boost::system::error_code error;
  tls.use_certificate_chain_file(certificate, error);
  if (error) {
    throw InvalidArgument(fmt::format("the certificate '{}' cannot be used: {}",
                                      escape_for_display(certificate), error.message()),
                          "a PEM file with the certificate, then those of its issuers");
  }
  tls.use_private_key_file(key, context::pem, error);
  if (error) {
    throw InvalidArgument(
        fmt::format("the key '{}' cannot be used: {}", escape_for_display(key), error.message()),
        "the private key of the certificate, in PEM and without a passphrase");
  }
  return tls;
}

}  // namespace casemate::mcp
