#pragma once

// The words of the seam: every enumeration, spelled like its wire value, with the one table that
// says how it is written. Pure values; safe from any thread.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace casemate {

// How strong the boundary between guest code and the host is, weakest first. The numeric order is
// the ladder; `meets_floor` is the only comparison. A rung says what a backend *claims*; the
// conformance kit shows what it can prove.
enum class Isolation : std::uint8_t {
  process,     // no boundary: guest code runs inside the host process ("none" reads as this)
  runtime,     // a language runtime is the only fence
  os_process,  // a confined ordinary process
  container,   // own namespaces and root, shared kernel
  hardened_container,  // a second kernel interface in front of the host's (gVisor, emulated VM)
  microvm,             // hardware-virtualised, minimal machine
  vm,                  // hardware-virtualised, full machine
};

// What a sandbox may reach. There is no order on purpose: a mode is served exactly or refused.
enum class Egress : std::uint8_t { unrestricted, allowlist, closed };

// What a backend can do. `exec` and `files_in` are what silence means.
enum class Capability : std::uint8_t {
  exec,
  run_code,
  host_tools,
  files_in,
  files_out,
  files_list,
  files_delete,
  snapshot,
  attached_identity,
};

// Path grammar and argv quoting of the guest, nothing else.
enum class OsFamily : std::uint8_t { posix, windows };

// Whether what a source returned may be trusted as an instruction's author. Ranked: untrusted is
// weaker.
enum class SourceIntegrity : std::uint8_t { untrusted, trusted };

// In whose name a host function acts. `user` can be declared and is never servable.
enum class Identity : std::uint8_t { app, user };

// What a directory entry is. A hard link a backend cannot vouch for is `other`.
enum class EntryKind : std::uint8_t { file, directory, symlink, other };

// What becomes of a declared output: handed to the sink, or only checked and counted.
enum class OutputDisposition : std::uint8_t { land, consume };

// Whether landing names are rewritten to Unicode NFC. `none` disables the rewrite only; collision
// keys always use NFC.
enum class NameNormalization : std::uint8_t { nfc, none };

// How guest code's run ended. A timeout is an outcome, never an exception.
enum class Outcome : std::uint8_t { exited, signaled, timed_out, cancelled, out_of_memory };

// The limit that bit, named for the person who has to raise it.
enum class Limit : std::uint8_t { memory, pids, disk, cpu, files, time };

// Forms an image reference can take, matched against a backend's declaration.
enum class ImageForm : std::uint8_t { host, dir, oci, docker_archive, registry };

// How host-tool calls travel, where a backend can carry them.
enum class HostToolTransport : std::uint8_t { none, channel, files };

// Each returns the wire spelling, a string literal; "unknown" for a value cast from outside.
std::string_view to_string(Isolation value);
std::string_view to_string(Egress value);
std::string_view to_string(Capability value);
std::string_view to_string(OsFamily value);
std::string_view to_string(SourceIntegrity value);
std::string_view to_string(Identity value);
std::string_view to_string(EntryKind value);
std::string_view to_string(OutputDisposition value);
std::string_view to_string(NameNormalization value);
std::string_view to_string(Outcome value);
std::string_view to_string(Limit value);
std::string_view to_string(ImageForm value);
std::string_view to_string(HostToolTransport value);

// Each parses the wire spelling exactly (case matters) and throws `InvalidArgument` that names the
// text and the valid spellings. `parse_isolation` also reads "none" as `process`;
// `parse_capability` refuses the older "network" with a sentence that points to the egress mode.
Isolation parse_isolation(std::string_view text);
Egress parse_egress(std::string_view text);
Capability parse_capability(std::string_view text);
OsFamily parse_os_family(std::string_view text);
SourceIntegrity parse_source_integrity(std::string_view text);
Identity parse_identity(std::string_view text);
EntryKind parse_entry_kind(std::string_view text);
OutputDisposition parse_output_disposition(std::string_view text);
NameNormalization parse_name_normalization(std::string_view text);
Outcome parse_outcome(std::string_view text);
Limit parse_limit(std::string_view text);
ImageForm parse_image_form(std::string_view text);
HostToolTransport parse_host_tool_transport(std::string_view text);

// The ladder's spellings, weakest first, for messages and completion.
const std::vector<std::string_view>& isolation_ladder();

// True for the seven rungs. A value cast from outside the ladder is unknown and must be refused,
// never ranked.
bool is_known(Isolation value);

// True when both are known rungs and `declared` is at least as strong as `floor`.
bool meets_floor(Isolation declared, Isolation floor);

// The spelling of `valid` that `text` was probably meant to be, for "did you mean"; absent when
// none is near. Letter case and '-' for '_' do not count. The result points into `valid`.
std::optional<std::string_view> nearest_spelling(std::string_view text,
                                                 std::span<const std::string_view> valid);

// The spelling of `valid` that `text` differs least from, and whether it was probably meant. Absent
// where there is none, or `text` is empty or longer than any.
struct NearSpelling {
  std::string_view text;
  bool is_near = false;
};
std::optional<NearSpelling> least_distant(std::string_view text,
                                          std::span<const std::string_view> valid);

using CapabilitySet = std::set<Capability>;

// {exec, files_in}: what a spec requires and a backend offers when neither says.
const CapabilitySet& default_capabilities();

// Comma-separated wire spellings in wire order, or "nothing" for an empty set; for refusals.
std::string join_names(const std::set<Capability>& values);
std::string join_names(const std::set<Egress>& values);
std::string join_names(const std::set<Identity>& values);
std::string join_names(const std::set<OsFamily>& values);
std::string join_names(const std::set<Limit>& values);
std::string join_names(const std::set<ImageForm>& values);

}  // namespace casemate
