#pragma once

// The files of one call. The guest writes NNNN.request.json, one of
//
//   {"id": "0001", "name": "lookup", "arguments": {...}}
//   {"id": "0001", "abandoned": true}
//
// and the host NNNN.response.json, one of {"value": ...} and {"refusal": "..."}. A file of no bytes
// has not arrived; a response that is no JSON yet is read again by the guest. The number of the
// file counts, "id" is for people.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "casemate/host_tools/answer.h"

namespace casemate {

// What a response has beside its value: `{"value": ` and `}`.
inline constexpr std::uint64_t kOverExecFramingBytes = 11;

struct OverExecAbandoned {};

struct OverExecRequest {
  // False: what was sent in its place is no string, and `name` says of which type it is.
  bool has_name = true;
  std::string name;
  // JSON text; of any type.
  std::string arguments;
};

// A request, or the refusal of one that cannot be taken apart.
using OverExecMessage = std::variant<OverExecRequest, OverExecAbandoned, HostToolAnswer>;

// Never throws for what a guest wrote.
OverExecMessage read_over_exec_request(std::string_view text);

HostToolAnswer over_exec_request_too_large(std::uint64_t max_bytes);

std::string over_exec_response(const HostToolAnswer& answer);

}  // namespace casemate
