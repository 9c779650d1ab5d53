#include "casemate/core/host_tool_fold.h"

#include <algorithm>
#include <limits>

namespace casemate {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t sum(std::uint64_t left, std::uint64_t right) {
  return left > kMost - right ? kMost : left + right;
}

std::uint64_t product(std::uint64_t left, std::uint64_t right) {
  return right != 0 && left > kMost / right ? kMost : left * right;
}

}  // namespace

SandboxLimits fold_host_tools(const SandboxSpec& spec, HostToolTransport transport) {
  SandboxLimits asked{.files_in = spec.files_in, .files_out = spec.files_out};
  if (!spec.host_tools || transport != HostToolTransport::files) return asked;
  const std::uint64_t calls = spec.host_tools->max_calls;
  const TransferLimits& responses = spec.host_tools->response_limits;

  TransferLimits& out = asked.files_out;
  out.max_total_bytes =
      sum(out.max_total_bytes,
          sum(product(sum(calls, 1), responses.max_bytes_per_file), responses.max_total_bytes));
  out.max_files = sum(out.max_files, sum(calls, 3));
  out.max_bytes_per_file =
      std::max({out.max_bytes_per_file, responses.max_bytes_per_file, responses.max_total_bytes});

  TransferLimits& in = asked.files_in;
  in.max_total_bytes = sum(in.max_total_bytes, sum(responses.max_total_bytes,
                                                   kHostToolModuleBytes + kHostToolLauncherBytes));
  in.max_files = sum(in.max_files, sum(calls, 2));
  in.max_bytes_per_file =
      std::max({in.max_bytes_per_file, kHostToolModuleBytes, responses.max_bytes_per_file});
  return asked;
}

}  // namespace casemate
