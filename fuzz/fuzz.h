#pragma once

// What the fuzz targets share. A target is a function on bytes that checks sentences, not only that
// nothing crashes: `libfuzzer.cc` makes a fuzzer of one, `replay_test.cc` a test of all with the
// seeds of fuzz/corpus.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace casemate::fuzz {

// A sentence that did not hold. Derived from nothing, so that no handler under test takes it.
struct Broken {
  std::string sentence;
};

inline void require(bool holds, std::string_view sentence) {
  if (!holds) throw Broken{std::string(sentence)};
}

// Cuts the bytes of one input into the parts that a target needs.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  // 0 when nothing is left.
  unsigned byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  // Up to the next `separator`, which is taken too, or all that is left.
  std::string_view until(char separator) {
    const std::size_t end = rest_.find(separator);
    const std::string_view part = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return part;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Throws `Broken`. Anything else that comes out of a target is a finding too.
using Target = void (*)(std::string_view bytes);

void fuzz_archives(std::string_view bytes);
void fuzz_artifact_names(std::string_view bytes);
void fuzz_channel_frames(std::string_view bytes);
void fuzz_client_hello(std::string_view bytes);
void fuzz_command_line(std::string_view bytes);
void fuzz_config(std::string_view bytes);
void fuzz_dns_messages(std::string_view bytes);
void fuzz_egress_frames(std::string_view bytes);
void fuzz_frames(std::string_view bytes);
void fuzz_guest_paths(std::string_view bytes);
void fuzz_host_patterns(std::string_view bytes);
void fuzz_http_requests(std::string_view bytes);
void fuzz_image_documents(std::string_view bytes);
void fuzz_image_layers(std::string_view bytes);
void fuzz_json(std::string_view bytes);
void fuzz_json_schema(std::string_view bytes);
void fuzz_lying_guest(std::string_view bytes);
void fuzz_manifest(std::string_view bytes);
void fuzz_mcp_messages(std::string_view bytes);
void fuzz_over_exec(std::string_view bytes);
void fuzz_protocol(std::string_view bytes);
void fuzz_request_heads(std::string_view bytes);
void fuzz_run_json(std::string_view bytes);
void fuzz_socks_requests(std::string_view bytes);
void fuzz_stream_messages(std::string_view bytes);
void fuzz_utf8(std::string_view bytes);
void fuzz_values(std::string_view bytes);

struct NamedTarget {
  std::string_view name;
  Target run;
};

// In the order of the alphabet; CMakeLists.txt has the same names.
inline constexpr auto kTargets = std::to_array<NamedTarget>({
    {"archives", fuzz_archives},
    {"artifact_names", fuzz_artifact_names},
    {"channel_frames", fuzz_channel_frames},
    {"client_hello", fuzz_client_hello},
    {"command_line", fuzz_command_line},
    {"config", fuzz_config},
    {"dns_messages", fuzz_dns_messages},
    {"egress_frames", fuzz_egress_frames},
    {"frames", fuzz_frames},
    {"guest_paths", fuzz_guest_paths},
    {"host_patterns", fuzz_host_patterns},
    {"http_requests", fuzz_http_requests},
    {"image_documents", fuzz_image_documents},
    {"image_layers", fuzz_image_layers},
    {"json", fuzz_json},
    {"json_schema", fuzz_json_schema},
    {"lying_guest", fuzz_lying_guest},
    {"manifest", fuzz_manifest},
    {"mcp_messages", fuzz_mcp_messages},
    {"over_exec", fuzz_over_exec},
    {"protocol", fuzz_protocol},
    {"request_heads", fuzz_request_heads},
    {"run_json", fuzz_run_json},
    {"socks_requests", fuzz_socks_requests},
    {"stream_messages", fuzz_stream_messages},
    {"utf8", fuzz_utf8},
    {"values", fuzz_values},
});

}  // namespace casemate::fuzz
