#include "casemate/local/state_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"

namespace casemate::local {
namespace {

using namespace std::chrono_literals;

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectoryTest() {
    char name[] = "/tmp/casemate-state-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~StateDirectoryTest() override { std::filesystem::remove_all(path_); }
  std::filesystem::path path_;
};

Record sample() {
  return {.id = "0011223344556677",
          .key = {"scope\n\"", "\u00fc", "agent"},
          .kind = "codeact",
          .fingerprint = "f",
          .image = "host",
          .environment = {{"PATH", "/bin"}, {"\xff", ""}},
          .work_dir = "/workspace",
          .created = 18446744073709551615U,
          .labels = {{"a", "b"}},
          .egress = Egress::allowlist,
          .egress_allow = {HostPattern::parse("*.example.org:8443"),
                           HostPattern::parse("[2001:db8::7]")},
          .limits_not_held = {Limit::cpu, Limit::pids},
          .groups = {.memory = ControllerPlace{"/sys/fs/cgroup/memory", false},
                     .pids = {},
                     .cpu = {},
                     .accounting = ControllerPlace{"/sys/fs/cgroup/unified", true}},
          .ungrouped = {Limit::pids},
          .pids = 128,
          .cpu_seconds = 30,
          .cpu_millis = 500};
}

TEST(StateRecord, ComesBackAsItWasWritten) {
  EXPECT_EQ(decode_record(encode_record(sample())), sample());
}

TEST(StateRecord, KeepsTextThatIsNoUtf8ByteForByte) {
  Record record = sample();
  record.key = {"a\xff", std::string("\0\x80", 2), "\xed\xa0\x80"};
  record.kind = "\xfe";
  record.labels = {{"\xff", "\xfe"}, {"\xef\xbf\xbd", "plain"}};
  EXPECT_EQ(decode_record(encode_record(record)), record);
}

TEST(StateRecord, WhatIsNotOneOfOursGivesNothing) {
  for (const char* text : {"", "{}", "[]", "null", "{\"version\":2}", "{\"version\":1,\"id\":7}"}) {
    EXPECT_EQ(decode_record(text), std::nullopt) << text;
  }
  const std::string whole = encode_record(sample());
  EXPECT_EQ(decode_record(whole.substr(0, whole.size() - 1)), std::nullopt);
  for (const char* id : {"", ".", "..", "a/b", "\\u0000"}) {
    std::string other = whole;
    other.replace(other.find(sample().id), sample().id.size(), id);
    EXPECT_EQ(decode_record(other), std::nullopt)
        << "directories are called by the id '" << id << "'";
  }
}

TEST(StateRecord, OneOfAnotherBuildSaysWhoseItIsAndIsNotAdopted) {
  const auto is_known = [](const std::string& text) {
    const std::optional<Record> record = decode_record(text);
    return record && record->id == sample().id && record->key == sample().key &&
           record->kind == sample().kind && record->fingerprint.empty();
  };
  const boost::json::object whole = boost::json::parse(encode_record(sample())).as_object();
  const std::set<std::string_view> needed = {"id", "scope", "thread_id", "agent_dir", "kind"};
  for (const auto& field : whole) {
    boost::json::object without = whole;
    without.erase(field.key());
    const std::string text = boost::json::serialize(without);
    if (needed.contains(std::string_view(field.key()))) {
      EXPECT_EQ(decode_record(text), std::nullopt) << field.key();
      continue;
    }
    EXPECT_TRUE(is_known(text)) << "without " << field.key();
    boost::json::object changed = whole;
    changed[field.key()] = boost::json::array{true};
    EXPECT_TRUE(is_known(boost::json::serialize(changed))) << field.key() << " of another type";
  }
  boost::json::object later = whole;
  later["version"] = 2;
  EXPECT_TRUE(is_known(boost::json::serialize(later)));
  later = whole;
  later["something new"] = 1;
  EXPECT_EQ(decode_record(boost::json::serialize(later)), sample());
}

TEST_F(StateDirectoryTest, ARecordIsReplacedAsAWholeAndOneThatCannotBeReadHasTheDirectorysName) {
  const sys::UniqueFd directory(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Record unknown;
  unknown.id = "name";
  EXPECT_EQ(read_record(directory.get(), "name"), unknown) << "there is none";
  write_record(directory.get(), sample());
  std::ifstream before(path_ / "record.json");
  Record adopted = sample();
  adopted.key.scope = "another";
  write_record(directory.get(), adopted);
  EXPECT_EQ(read_record(directory.get(), "name"), adopted);
  EXPECT_EQ(decode_record(std::string(std::istreambuf_iterator<char>(before), {})), sample())
      << "whoever had it open has it";
  EXPECT_FALSE(std::filesystem::exists(path_ / "record.next"));
  sys::write_file_at(directory.get(), "record.json", "\xff{", 0600);
  EXPECT_EQ(read_record(directory.get(), "name"), unknown);
}

TEST_F(StateDirectoryTest, MakesItsPartsForItsUserAlone) {
  const StateDirectory state(path_ / "root");
  for (const char* name : {"", "new", "sandboxes", "trash", "locks"}) {
    EXPECT_EQ(std::filesystem::status(path_ / "root" / name).permissions(),
              std::filesystem::perms::owner_all)
        << name;
  }
  const StateDirectory again(path_ / "root");
}

TEST_F(StateDirectoryTest, RefusesWhatOthersCanReach) {
  std::filesystem::create_directory(path_ / "open");
  std::filesystem::permissions(path_ / "open", std::filesystem::perms(0710));
  expect_refusal<SandboxUnavailable>([&] { StateDirectory{path_ / "open"}; }, {"710", "700"});
  std::filesystem::permissions(path_ / "open", std::filesystem::perms(0700));
  StateDirectory{path_ / "open"};
}

TEST_F(StateDirectoryTest, RefusesALinkAFileAndAMissingParent) {
  std::filesystem::create_directory_symlink(path_, path_ / "link");
  expect_refusal<SandboxUnavailable>([&] { StateDirectory{path_ / "link"}; }, "link");
  expect_refusal<SandboxUnavailable>([&] { StateDirectory{path_ / "none" / "deeper"}; }, "none");
}

TEST_F(StateDirectoryTest, OneHolderOfAnExclusiveLockAndManyOfASharedOne) {
  const StateDirectory state(path_ / "root");
  const auto attempt = [&](FileLock::Kind kind) {
    return FileLock::attempt(state.locks(), "a.lock", kind).has_value();
  };
  {
    const FileLock held =
        FileLock::wait(state.locks(), "a.lock", FileLock::Kind::exclusive, {}, "it");
    EXPECT_FALSE(attempt(FileLock::Kind::shared));
    EXPECT_FALSE(attempt(FileLock::Kind::exclusive));
    CallControl bounded;
    bounded.deadline = std::chrono::steady_clock::now() + 5ms;
    expect_refusal<SandboxTimeout>(
        [&] {
          FileLock::wait(state.locks(), "a.lock", FileLock::Kind::shared, bounded, "the lock");
        },
        "the lock");
    std::stop_source stop;
    stop.request_stop();
    CallControl stopped;
    stopped.stop = stop.get_token();
    expect_refusal<SandboxCancelled>([&] {
      FileLock::wait(state.locks(), "a.lock", FileLock::Kind::shared, stopped, "the lock");
    });
  }
  const auto first = FileLock::attempt(state.locks(), "a.lock", FileLock::Kind::shared);
  EXPECT_TRUE(first);
  EXPECT_TRUE(attempt(FileLock::Kind::shared));
  EXPECT_FALSE(attempt(FileLock::Kind::exclusive));
}

TEST(StateLocks, AreFewAndTheSameForEveryProcess) {
  EXPECT_EQ(lock_name("00f1aaaa"), "00f.lock");
  EXPECT_EQ(lock_name("00f2bbbb"), "00f.lock");
  EXPECT_EQ(lock_name("f1"), "f1.lock");
  const SandboxKey key{"scope", "thread", "agent"};
  EXPECT_EQ(lock_name(sandbox_name(key, "kind")), lock_name(identity_digest(key, "kind")))
      << "other builds and other backends call it so";
}

TEST(SandboxNames, TellConversationsApartAndNothingElseOfAKey) {
  const SandboxKey key{"scope", "thread", "agent"};
  const std::string name = sandbox_name(key, "kind");
  EXPECT_EQ(name.size(), 32U);
  const std::string conversation = conversation_digits("scope", "thread");
  std::set<std::string> names{name};
  for (const SandboxKey& other :
       {SandboxKey{"scope", "thread", "another"}, SandboxKey{"scope", "another", "agent"},
        SandboxKey{"another", "thread", "agent"}}) {
    names.insert(sandbox_name(other, "kind"));
    EXPECT_EQ(may_be_of(conversation, sandbox_name(other, "kind")),
              other.scope == key.scope && other.thread_id == key.thread_id);
  }
  names.insert(sandbox_name(key, "another"));
  EXPECT_TRUE(may_be_of(conversation, sandbox_name(key, "another")));
  EXPECT_EQ(names.size(), 5U);
  EXPECT_TRUE(may_be_of(conversation, identity_digest(key, "kind"))) << "of another build";
}

TEST_F(StateDirectoryTest, HowLongOneIsIdleIsCountedByAClockThatNobodySets) {
  const std::filesystem::path lock = path_ / "busy.lock";
  const sys::UniqueFd directory(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(idle_time(directory.get(), boot_time()), 0s) << "it was never in use";
  sys::write_file_at(directory.get(), "busy.lock", "", 0600);
  mark_used(directory.get());
  EXPECT_LE(idle_time(directory.get(), boot_time()), 5s);
  struct stat status{};
  ASSERT_EQ(stat(lock.c_str(), &status), 0);
  EXPECT_LE(static_cast<std::uint64_t>(status.st_mtim.tv_sec), boot_time() / 1000000000);
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                             {.tv_sec = status.st_mtim.tv_sec - 100, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, lock.c_str(), times, 0), 0);
  EXPECT_GE(idle_time(directory.get(), boot_time()), 100s);
  EXPECT_LE(idle_time(directory.get(), boot_time()), 110s);
}

TEST_F(StateDirectoryTest, IsMissedOnceAPartOfItIsRemoved) {
  const StateDirectory state(path_ / "root");
  EXPECT_TRUE(state.is_there());
  std::filesystem::remove(path_ / "root" / "trash");
  EXPECT_FALSE(state.is_there());
}

TEST_F(StateDirectoryTest, NobodyListensWhereThereIsNoSocket) {
  const StateDirectory state(path_ / "root");
  EXPECT_FALSE(connect_to(state.fresh(), "lease.sock"));
}

TEST(DefaultStateDirectory, IsTheUsersRuntimeDirectoryWhereThatIsPrivate) {
  char name[] = "/tmp/casemate-runtime-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  // A user who has no /run/user of its own here.
  constexpr uid_t kNobodyElse = 2'147'000'001;
  const std::string fallback = "/tmp/casemate-2147000001";
  EXPECT_EQ(default_state_directory(kNobodyElse, name), fallback) << "it is another user's";
  EXPECT_EQ(default_state_directory(kNobodyElse, nullptr), fallback);
  EXPECT_EQ(default_state_directory(kNobodyElse, ""), fallback);
  EXPECT_EQ(default_state_directory(0, name), "/run/casemate");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(name, kNobodyElse, kNobodyElse), 0);
    EXPECT_EQ(default_state_directory(kNobodyElse, name), std::string(name) + "/casemate");
    EXPECT_EQ(default_state_directory(kNobodyElse, &name[1]), fallback) << "not absolute";
    const std::string link = std::string(name) + "-link";
    ASSERT_EQ(symlink(name, link.c_str()), 0);
    EXPECT_EQ(default_state_directory(kNobodyElse, link.c_str()), fallback) << "a link";
    unlink(link.c_str());
    ASSERT_EQ(chmod(name, 0750), 0);
    EXPECT_EQ(default_state_directory(kNobodyElse, name), fallback) << "a group may look in";
  }
  rmdir(name);
}

}  // namespace
}  // namespace casemate::local
