#pragma once

// Reads tar archives of strangers, plain or with gzip or zstd, one entry after another.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "casemate/core/control.h"

namespace casemate::images {

enum class EntryKind : std::uint8_t {
  file,
  directory,
  symbolic_link,
  hard_link,
  other,  // devices, FIFOs, sockets
};

// Bytes of the archive's, unchecked.
struct TarEntry {
  std::string name;
  EntryKind kind = EntryKind::other;
  // Of links: where it leads, or the name of an earlier entry.
  std::string target;
  // Of files, with what a sparse one leaves out.
  std::uint64_t size = 0;
  bool executable = false;
  // Seconds and nanoseconds (0 to 999,999,999) since 1970.
  std::int64_t modified = 0;
  long modified_nanoseconds = 0;
};

struct TarBounds {
  // Of the archive uncompressed, and of the sizes that its entries state. A file that is read to
  // its end may have twice as many.
  std::uint64_t max_bytes = 0;
  std::uint64_t max_entries = 0;
};

// What went through a stream that was read to its end.
struct TarSums {
  std::uint64_t bytes = 0;  // of the file
  std::uint64_t unpacked_bytes = 0;
  std::uint64_t entries = 0;
  std::string digest;           // of the file, `sha256:<64 hex>`
  std::string unpacked_digest;  // of the tar in it
};

enum class Sums : std::uint8_t {
  wanted,
  unwanted,  // a plain tar is then read by seeking over what nobody asks for
};

// Whether a file begins as gzip or zstd: then every pass reads all of it. Its position stays.
bool is_compressed(int file);

// One pass over an archive. Throws `SandboxImageInvalid` for what is no such archive, is cut off,
// or exceeds the bounds; `SandboxCancelled` and `SandboxTimeout` by `control`, which is looked at
// for every block read; `std::system_error` when reading the file fails. `on_position` is told how
// far in the file that was; what it throws passes through. Nothing here is thread-safe; `file` is
// borrowed and its position used up.
class TarStream {
 public:
  TarStream(int file, const TarBounds& bounds, const CallControl& control, Sums sums = Sums::wanted,
            std::function<void(std::uint64_t)> on_position = {});
  ~TarStream();
  TarStream(const TarStream&) = delete;
  TarStream& operator=(const TarStream&) = delete;

  // The next entry; absent after the last one. Data of the one before is passed over.
  std::optional<TarEntry> next();

  // A part of the current file's data and where in the file it belongs; good until the next call.
  struct Block {
    std::span<const char> bytes;
    std::uint64_t offset = 0;
  };
  // Absent at the data's end. Never reaches beyond the entry's size.
  std::optional<Block> read();

  // Reads on to the end of the file, with what stands behind the archive's own end. Only with
  // `Sums::wanted`.
  TarSums finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace casemate::images
