#pragma once

// Where collected outputs go.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "casemate/core/vocabulary.h"

namespace casemate {

class FileStore;
struct DirectoryRoot;

// One collected output. Everything but `content` was checked by the host; `content` is what guest
// code wrote, hostile bytes that nobody has looked at.
struct Artifact {
  // Landing name: valid by `validate_artifact_name`, "/" separates directories.
  std::string name;
  std::string content;
  // The spec's kind, for sinks that sort by it.
  std::string kind;
  // As the host declared it; never sniffed from the bytes, never said by the guest.
  std::optional<std::string> media_type;
  friend bool operator==(const Artifact&, const Artifact&) = default;
};

struct LandedArtifact {
  std::string name;
  // What a model or a person reads about it: one line of valid UTF-8 that names no host path.
  std::string display;
  // How the host finds it again (a path, an address). Never rendered to a model.
  std::optional<std::string> handle;
  // Size that landed. `collect_outputs` sets it, whatever the sink says.
  std::uint64_t bytes = 0;
  friend bool operator==(const LandedArtifact&, const LandedArtifact&) = default;
};

// A destination of the host's choice. It refuses only by throwing; what it throws reaches the
// caller of `collect_outputs` as it is. A sink that reads its destination back to a program through
// a store of its own lets one call's output be the next call's input: keeping the two apart is the
// host's duty (`refuse_overlap` checks it for directories).
// `collect_outputs` calls a sink from the thread it runs on; a sink shared by several runs must
// allow calls from several threads.
class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // Lands one artifact: when this returns it is there whole, when it throws nothing of it is.
  virtual LandedArtifact deliver(const Artifact& artifact) = 0;

  // Lands a batch and returns one record an artifact, in the same order. By default one by one, so
  // that a refusal part-way keeps the earlier ones. A sink that can land all or none overrides it
  // and says so.
  virtual std::vector<LandedArtifact> deliver_all(std::span<const Artifact> artifacts);

  // Whether a `deliver_all` that throws has landed nothing, so that a model can be told so.
  virtual bool lands_all_or_none() const { return false; }

  // Whether names are rewritten to NFC before they get here.
  virtual NameNormalization normalization() const { return NameNormalization::nfc; }
};

enum class Overwrite : std::uint8_t { no, yes };

struct FileSystemSinkOptions {
  Overwrite overwrite = Overwrite::no;
  // Text of `LandedArtifact::display`. By default the name, escaped, and the byte count:
  // "report.txt (1234 bytes)".
  std::function<std::string(const Artifact&)> display = {};
};

// Lands artifacts as files below one directory of the host.
//
// The root is resolved once, its links followed, and held by descriptor; a root that is renamed
// later is still written to. Below it no link is ever followed. Parents are created (0777 less the
// umask, files 0666 less the umask) and removed again when nothing lands. A file is written to an
// unnamed file beside its destination (a short ".casemate-" name where the file system has no
// unnamed ones), synced and then linked in: others see it whole or not at all. `deliver_all` lands
// all or none: it stages the whole batch, looks at every destination, then links; a failure takes
// back what was linked and, told to overwrite, puts back what was replaced (not on file systems
// that cannot exchange two names). A host that dies between two links leaves the first, and what it
// had set aside under ".casemate-" names, which the next delivery to that directory removes.
//
// Throws, all without a host path in the text:
//  - `SandboxLandingNotConfined`: the name leads outside the root or through a link below it;
//  - `SandboxArtifactNameInvalid`, `SandboxArtifactNameCollision`: as the name rules say;
//  - `SandboxLandingExists`: something has the name, or a file stands where a directory is needed.
//    With `Overwrite::yes` files and links are replaced (a link itself, never its target);
//    directories and what stands in a directory's place still are not;
//  - `SandboxFileError` with the host's errno for the rest (ENOSPC: the disk is full; EFBIG: over
//    the process's RLIMIT_FSIZE, which kills a process that does not ignore SIGXFSZ).
// May be used from several threads. Does not protect against another process of the host's own
// user that rewrites the destination after it landed.
class FileSystemSink final : public OutputSink {
 public:
  LandedArtifact deliver(const Artifact& artifact) override;
  std::vector<LandedArtifact> deliver_all(std::span<const Artifact> artifacts) override;
  bool lands_all_or_none() const override { return true; }

  // The root's real path when the sink was made; the operator's to see.
  const std::filesystem::path& root() const;

 private:
  friend std::unique_ptr<FileSystemSink> make_file_system_sink(const std::filesystem::path&,
                                                               FileSystemSinkOptions);
  friend void refuse_overlap(const OutputSink&, const FileStore&);
  FileSystemSink(std::shared_ptr<const DirectoryRoot> root, FileSystemSinkOptions options);

  std::shared_ptr<const DirectoryRoot> root_;
  FileSystemSinkOptions options_;
  // One batch at a time: a batch that is taken back removes directories that the next may count on.
  std::mutex mutex_;
};

// Makes the sink; a missing root is created with its parents. Throws `InvalidArgument` naming the
// path when it cannot be created or opened as a directory.
std::unique_ptr<FileSystemSink> make_file_system_sink(const std::filesystem::path& root,
                                                      FileSystemSinkOptions options = {});

// Says that a store may read what a sink of the same host wrote. With it a program of one call can
// prepare what the model asks to be handed to the next, and what it prepared then counts as the
// host's own file. Name it only where every reader of the store treats its files as untrusted.
struct UnsafeSharedStore {
  explicit UnsafeSharedStore() = default;
};

// Throws `InvalidArgument` when `sink` and `store` are a file-system sink and a directory store
// whose directories are the same or lie in one another, judged by the directories they hold open
// (so links and ".." do not matter; a bind mount of a part of one in the other is not seen). Other
// kinds of sinks and stores pass unseen: there it is the host's duty.
void refuse_overlap(const OutputSink& sink, const FileStore& store);
// Passes whatever they are; the token is the statement.
void refuse_overlap(const OutputSink& sink, const FileStore& store, UnsafeSharedStore accepted);

}  // namespace casemate
