#pragma once

// What a host is ready to share with programs, by name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace casemate {

class OutputSink;
struct DirectoryRoot;

// Files by name, read as bytes. Implementations allow calls from several threads.
class FileStore {
 public:
  virtual ~FileStore() = default;

  // Every name that can be read, sorted by bytes. Each is valid by `validate_artifact_name`.
  virtual std::vector<std::string> list() const = 0;

  // The bytes of one file; absent when there is none of that name. A file of more than `max_bytes`
  // (equality passes), also one that grows while it is read, is `SandboxTransferCapExceeded`:
  // never a part of it, and at most one byte more than the cap is read. A failure is
  // `SandboxFileError` with the host's errno.
  virtual std::optional<std::string> read(std::string_view name, std::uint64_t max_bytes) const = 0;
};

// Bounds on the listing of a directory store. Equality passes; one more is
// `SandboxTransferCapExceeded`: a listing that is cut short would tell a model that files do not
// exist.
struct ListingLimits {
  // Entries of any kind that are looked at.
  std::size_t max_entries = 10'000;
  // Directories below the root that a file may lie in.
  std::size_t max_depth = 32;
};

// The regular files below one directory, read byte for byte.
//
// The root is resolved once, its links followed, and held by descriptor. Below it links are
// neither listed nor followed (`SandboxPathRefused`); directories, devices, sockets and FIFOs are
// never opened for reading (`SandboxFileError` with EISDIR or EINVAL). Names that break a rule of
// `validate_artifact_name` are not listed and are `SandboxArtifactNameInvalid` when read. Refusals
// name no host path.
class DirectoryFileStore final : public FileStore {
 public:
  // Throws `InvalidArgument` naming the path when it is no directory that can be opened.
  explicit DirectoryFileStore(const std::filesystem::path& root, ListingLimits limits = {});

  std::vector<std::string> list() const override;
  std::optional<std::string> read(std::string_view name, std::uint64_t max_bytes) const override;

  // The root's real path when the store was made; the operator's to see.
  const std::filesystem::path& root() const;

 private:
  friend void refuse_overlap(const OutputSink&, const FileStore&);

  std::shared_ptr<const DirectoryRoot> root_;
  ListingLimits limits_;
};

// Files held in memory.
class InMemoryStore final : public FileStore {
 public:
  // Throws `SandboxArtifactNameInvalid` for a name that breaks a rule.
  explicit InMemoryStore(std::map<std::string, std::string> files);

  std::vector<std::string> list() const override;
  std::optional<std::string> read(std::string_view name, std::uint64_t max_bytes) const override;

 private:
  std::map<std::string, std::string, std::less<>> files_;
};

// Single host files under names of the operator's choice (`--file NAME=PATH`).
//
// Paths are the operator's: links are followed, relative ones start at the current directory when
// they are read. Only regular files are taken, judged on the opened descriptor: a directory is
// `SandboxFileError` with EISDIR, a FIFO, device or socket EINVAL, and none of them blocks. A path
// that is missing is ENOENT, not an absent name. Here refusals do name the path, escaped.
class NamedFilesStore final : public FileStore {
 public:
  // Throws `SandboxArtifactNameInvalid` for a name that breaks a rule, and
  // `SandboxArtifactNameCollision` for a name that is there twice or is a directory of another.
  // No file is touched.
  explicit NamedFilesStore(const std::vector<std::pair<std::string, std::filesystem::path>>& files);

  std::vector<std::string> list() const override;
  std::optional<std::string> read(std::string_view name, std::uint64_t max_bytes) const override;

 private:
  std::map<std::string, std::filesystem::path, std::less<>> files_;
};

}  // namespace casemate
