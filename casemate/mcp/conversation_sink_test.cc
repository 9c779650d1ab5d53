#include "casemate/mcp/conversation_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/mcp/conversation.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::mcp {
namespace {

Artifact artifact(std::string name, std::string content) {
  return {std::move(name), std::move(content), "codeact", {}};
}

// Without the digest behind it.
std::string path_of(const LandedArtifact& landed) {
  return landed.handle->substr(0, landed.handle->rfind('#'));
}

TEST(ConversationSink, LandsEachConversationInADirectoryOfItsOwn) {
  const Scratch scratch;
  ConversationSink sink(scratch / "out");
  const Conversation one({});
  const Conversation two({});
  std::vector<LandedArtifact> landed;
  for (const Conversation* each : {&one, &two}) {
    const Conversation::Current current(*each);
    landed.push_back(sink.deliver(artifact("plots/a.txt", each->thread_id())));
    EXPECT_EQ(landed.back().name, "plots/a.txt");
    EXPECT_TRUE(std::filesystem::exists(scratch / "out" / each->thread_id() / "plots/a.txt"));
    EXPECT_THROW(sink.deliver(artifact("plots/a.txt", "again")), SandboxLandingExists);
  }
  EXPECT_EQ(sink.read(landed[0], 100), one.thread_id());
  EXPECT_EQ(sink.read(landed[1], 100), two.thread_id());
  sink.end(one.thread_id());
  EXPECT_EQ(sink.read(landed[0], 100), one.thread_id()) << "what landed stays";
  EXPECT_THROW(sink.read(landed[0], one.thread_id().size() - 1), SandboxTransferCapExceeded);
}

TEST(ConversationSink, TakesNamesAsLongAsAny) {
  const Scratch scratch;
  ConversationSink sink(scratch / "out");
  const Conversation conversation({});
  const Conversation::Current current(conversation);
  EXPECT_EQ(sink.read(sink.deliver(artifact(std::string(255, 'x'), "long")), 4), "long");
}

TEST(ConversationSink, RefusesToLandOutsideOfAConversation) {
  const Scratch scratch;
  ConversationSink sink(scratch / "out");
  expect_refusal<InvalidArgument>([&] { sink.deliver(artifact("a", "b")); });
}

TEST(ConversationSink, ReadsNothingButWhatLanded) {
  const Scratch scratch;
  std::ofstream(scratch / "secret") << "secret";
  ConversationSink sink(scratch / "out");
  const Conversation conversation({});
  const Conversation::Current current(conversation);
  const LandedArtifact landed = sink.deliver(artifact("a", "b"));
  LandedArtifact other = landed;
  for (const std::string& handle :
       {std::string(), (scratch / "secret").native(), (scratch / "out/../secret").native(),
        std::string("/etc/passwd")}) {
    other.handle = handle + '#' + sha256_hex("secret");
    other.name = "secret";
    EXPECT_THROW(sink.read(other, 100), SandboxFileError) << handle;
  }
  // Replaced by a link since.
  std::filesystem::remove(path_of(landed));
  std::filesystem::create_symlink(scratch / "secret", path_of(landed));
  EXPECT_THROW(sink.read(landed, 100), SandboxPathRefused);
  std::filesystem::remove(path_of(landed));
  EXPECT_THROW(sink.read(landed, 100), SandboxFileError);
}

TEST(ConversationSink, WhatWasOverwrittenIsNotReadByItsOldAddress) {
  const Scratch scratch;
  ConversationSink sink(scratch / "out", {Overwrite::yes, {}});
  const Conversation conversation({});
  const Conversation::Current current(conversation);
  const LandedArtifact old = sink.deliver(artifact("a", "old"));
  const std::vector<Artifact> again{artifact("a", "new")};
  const LandedArtifact landed = sink.deliver_all(again).at(0);
  EXPECT_THROW(sink.read(old, 100), SandboxFileError);
  EXPECT_EQ(sink.read(landed, 100), "new");
  std::ofstream(path_of(landed)) << "by somebody else";
  EXPECT_THROW(sink.read(landed, 100), SandboxFileError);
}

}  // namespace
}  // namespace casemate::mcp
