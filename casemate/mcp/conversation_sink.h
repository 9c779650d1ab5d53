#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "casemate/transfer/sink.h"

namespace casemate::mcp {

// Lands what each conversation hands out in a directory of its own below one root, as
// `FileSystemSink` does there: two conversations never see or replace each other's files. The
// directory is named like the conversation (`Conversation::thread_id`), made when something lands,
// and stays.
//
// May be used from several threads.
class ConversationSink final : public OutputSink {
 public:
  // Makes the root when it is missing. Throws what `make_file_system_sink` throws.
  explicit ConversationSink(const std::filesystem::path& root, FileSystemSinkOptions options = {});

  // For the conversation of the calling thread. The `handle` of what landed is its path, '#', and
  // the SHA-256 of its bytes in hex. Throws what `FileSystemSink` throws, and `InvalidArgument`
  // where there is no conversation.
  LandedArtifact deliver(const Artifact& artifact) override;
  std::vector<LandedArtifact> deliver_all(std::span<const Artifact> artifacts) override;
  bool lands_all_or_none() const override { return true; }

  // The bytes of one of those as they landed, for `ServerOptions::read_artifact`. Links are not
  // followed. Throws `SandboxFileError` when it is there no more (also when it has other bytes now:
  // it was overwritten) or is none of ours, `SandboxTransferCapExceeded`.
  std::string read(const LandedArtifact& artifact, std::uint64_t max_bytes) const;

  // Nothing more will land for the conversation.
  void end(std::string_view thread_id);

  // The sink of the root itself, to be held against a store (`refuse_overlap`).
  const FileSystemSink& root() const { return *root_; }

 private:
  std::shared_ptr<FileSystemSink> sink_of_this_conversation();

  const FileSystemSinkOptions options_;
  const std::unique_ptr<FileSystemSink> root_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<FileSystemSink>, std::less<>> sinks_;
};

}  // namespace casemate::mcp
