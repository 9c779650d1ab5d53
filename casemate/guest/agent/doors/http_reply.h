#pragma once

// What the proxy door itself says to an HTTP client.

#include <string>
#include <string_view>

#include "casemate/core/egress_frame.h"

namespace casemate::guest {

// The host's refusal: the status that `http_status` has for it, its sentence as the text.
std::string http_refusal(const EgressAnswer& answer);
// 400, and why.
std::string http_bad_request(std::string_view why);
// 502, and why.
std::string http_bad_gateway(std::string_view why);
// The answer to CONNECT, before the tunnel.
std::string_view http_connected();

}  // namespace casemate::guest
