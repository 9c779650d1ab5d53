#include "casemate/mcp/conversation_sink.h"

#include <cerrno>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/mcp/conversation.h"
#include "casemate/transfer/file_store.h"

namespace casemate::mcp {
namespace {

void add_digest(LandedArtifact& landed, const Artifact& artifact) {
  landed.handle = landed.handle.value_or("") + '#' + sha256_hex(artifact.content);
}

}  // namespace

ConversationSink::ConversationSink(const std::filesystem::path& root, FileSystemSinkOptions options)
    : options_(std::move(options)), root_(make_file_system_sink(root, options_)) {}

std::shared_ptr<FileSystemSink> ConversationSink::sink_of_this_conversation() {
  const auto conversation = current_conversation();
  if (!conversation) throw InvalidArgument("nothing can land outside of a conversation");
  const std::lock_guard lock(mutex_);
  auto& sink = sinks_[*conversation];
  if (!sink) sink = make_file_system_sink(root_->root() / *conversation, options_);
  return sink;
}

LandedArtifact ConversationSink::deliver(const Artifact& artifact) {
  LandedArtifact landed = sink_of_this_conversation()->deliver(artifact);
  add_digest(landed, artifact);
  return landed;
}

std::vector<LandedArtifact> ConversationSink::deliver_all(std::span<const Artifact> artifacts) {
  std::vector<LandedArtifact> landed = sink_of_this_conversation()->deliver_all(artifacts);
  for (std::size_t at = 0; at < landed.size(); ++at) add_digest(landed[at], artifacts[at]);
  return landed;
}

std::string ConversationSink::read(const LandedArtifact& artifact, std::uint64_t max_bytes) const {
  const auto gone = [] { throw SandboxFileError("the artifact is not there any more", ENOENT); };
  // `<root>/<conversation>/<name>`, where a name may have directories.
  const std::filesystem::path root = root_->root();
  std::string handle = artifact.handle.value_or("");
  const auto mark = handle.rfind('#');
  if (mark == std::string::npos) gone();
  const std::string digest = handle.substr(mark + 1);
  handle.resize(mark);
  if (handle.size() <= artifact.name.size() + 1 || !handle.ends_with('/' + artifact.name)) gone();
  const std::filesystem::path directory =
      handle.substr(0, handle.size() - artifact.name.size() - 1);
  std::error_code ignored;
  if (directory.lexically_normal() != directory || directory.parent_path() != root ||
      !std::filesystem::is_directory(directory, ignored)) {
    gone();
  }
  auto bytes = DirectoryFileStore(directory).read(artifact.name, max_bytes);
  if (!bytes || sha256_hex(*bytes) != digest) gone();
  return std::move(*bytes);
}

void ConversationSink::end(std::string_view thread_id) {
  const std::lock_guard lock(mutex_);
  const auto found = sinks_.find(thread_id);
  if (found != sinks_.end()) sinks_.erase(found);
}

}  // namespace casemate::mcp
