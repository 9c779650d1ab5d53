#include "casemate/core/guest_path.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <map>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using namespace std::string_literals;

using Strings = std::vector<std::string>;

void expect_outside(std::string_view path, std::string_view working_directory = "/a/b") {
  const std::string text = expect_refusal<SandboxPathRefused>(
      [&] { confine_guest_path(path, working_directory); }, "outside the working directory");
  // The refused path is not repeated.
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

TEST(ConfineGuestPath, RefusesWhatLeadsOutside) {
  expect_outside("../secret");
  expect_outside("..");
  expect_outside("x/../../secret");
  expect_outside("/secret");
  expect_outside("/");
  expect_outside("/a");
  expect_outside("/a/b/../secret");
  expect_outside("../../../../a/secret");
}

// FO-05
TEST(ConfineGuestPath, ComparesComponentsNotCharacters) {
  expect_outside("/a/b2/secret");
  expect_outside("../b2");
  expect_outside("/a/b-outside/secret");
  EXPECT_EQ(confine_guest_path("/a/b/2", "/a/b"), "/a/b/2");
}

TEST(ConfineGuestPath, RefusesABackslashAndANul) {
  expect_refusal<SandboxPathRefused>([] { confine_guest_path("a\\b", "/a/b"); }, "backslash");
  expect_refusal<SandboxPathRefused>([] { confine_guest_path("a\0b"s, "/a/b"); }, "NUL");
}

TEST(ConfineGuestPath, TheDirectoryItselfIsInside) {
  for (const char* path : {"", ".", "./", "x/..", "/a/b", "/a/b/", "/a/./b/.", "../b"}) {
    EXPECT_EQ(confine_guest_path(path, "/a/b"), "/a/b") << path;
  }
}

TEST(ConfineGuestPath, JoinsAndNormalises) {
  EXPECT_EQ(confine_guest_path("x", "/a/b/"), "/a/b/x");
  EXPECT_EQ(confine_guest_path("x//y/./z/../w/", "/a/b"), "/a/b/x/y/w");
  EXPECT_EQ(confine_guest_path("/a/b/x", "/a/b"), "/a/b/x");
  EXPECT_EQ(confine_guest_path("//a/b/x", "/a/b"), "/a/b/x");
  EXPECT_EQ(confine_guest_path("..x/...", "/a/b"), "/a/b/..x/...");
  EXPECT_EQ(confine_guest_path("etc/passwd", "/"), "/etc/passwd");
  EXPECT_EQ(confine_guest_path("../x", "/"), "/x");
}

RC_GTEST_PROP(ConfineGuestPath, WhatPassesStartsWithTheDirectoryComponentByComponent, ()) {
  const auto path = *rc::gen::container<std::string>(rc::gen::elementOf("/./..ab\\\n*"s));
  const std::string working_directory =
      *rc::gen::elementOf(std::vector<std::string>{"/", "/a", "/a/b", "/a/./b/", "/.."});
  std::string confined;
  try {
    confined = confine_guest_path(path, working_directory);
  } catch (const SandboxPathRefused&) {
    return;
  }
  const std::string base = normalise_guest_path(working_directory);
  RC_ASSERT(base == "/" || confined == base || confined.starts_with(base + "/"));
  RC_ASSERT(confined.find("/../") == std::string::npos);
  RC_ASSERT(!confined.ends_with("/.."));
  RC_ASSERT(normalise_guest_path(confined) == confined);
  RC_ASSERT(confine_guest_path(confined, working_directory) == confined);
}

TEST(NormaliseGuestPath, ResolvesByText) {
  EXPECT_EQ(normalise_guest_path("/"), "/");
  EXPECT_EQ(normalise_guest_path(""), "/");
  EXPECT_EQ(normalise_guest_path("/.."), "/");
  EXPECT_EQ(normalise_guest_path("//a///b/"), "/a/b");
  EXPECT_EQ(normalise_guest_path("/a/../../b/."), "/b");
}

TEST(GuestPathRelativeTo, IsAbsentOutsideAndEmptyWhenEqual) {
  EXPECT_EQ(guest_path_relative_to("/a/b/c", "/a/b"), "c");
  EXPECT_EQ(guest_path_relative_to("/a/b/c/d/", "/a//b"), "c/d");
  EXPECT_EQ(guest_path_relative_to("/a/b", "/a/b/"), "");
  EXPECT_EQ(guest_path_relative_to("/a/b2", "/a/b"), std::nullopt);
  EXPECT_EQ(guest_path_relative_to("/a", "/a/b"), std::nullopt);
  EXPECT_EQ(guest_path_relative_to("/a/b", "/"), "a/b");
  EXPECT_EQ(guest_path_relative_to("/", "/"), "");
}

TEST(GuestDirectoryChain, GoesFromTheRootDownToThePath) {
  EXPECT_EQ(guest_directory_chain("c/d", "/a/b"),
            (Strings{"/", "/a", "/a/b", "/a/b/c", "/a/b/c/d"}));
  EXPECT_EQ(guest_directory_chain("", "/a"), (Strings{"/", "/a"}));
  EXPECT_EQ(guest_directory_chain("", "/"), Strings{"/"});
  EXPECT_EQ(guest_directory_chain("x", "/"), (Strings{"/", "/x"}));
  EXPECT_THROW(guest_directory_chain("../x", "/a"), SandboxPathRefused);
}

// A guest of our own: what is not listed is missing. Remembers what was asked.
class FakeGuest {
 public:
  explicit FakeGuest(std::map<std::string, EntryKind> entries) : entries_(std::move(entries)) {}

  GuestStat stat() {
    return [this](const std::string& path) -> std::optional<SandboxEntry> {
      asked.push_back(path);
      const auto found = entries_.find(path);
      if (found == entries_.end()) {
        return std::nullopt;
      }
      return SandboxEntry{.path = path, .kind = found->second, .size_bytes = {}};
    };
  }

  Strings asked;

 private:
  std::map<std::string, EntryKind> entries_;
};

constexpr auto kDirectory = EntryKind::directory;
constexpr auto kLink = EntryKind::symlink;

TEST(RefuseSymlinkedParents, RefusesALinkAnywhereAboveThePath) {
  for (const char* linked : {"/a", "/a/b", "/a/b/c"}) {
    std::map<std::string, EntryKind> entries{
        {"/a", kDirectory}, {"/a/b", kDirectory}, {"/a/b/c", kDirectory}};
    entries[linked] = kLink;
    FakeGuest guest(entries);
    expect_refusal<SandboxPathRefused>(
        [&] { refuse_symlinked_parents(guest.stat(), "c/secret", "/a/b"); }, "symbolic link");
  }
}

TEST(RefuseSymlinkedParents, AParentThatIsNoDirectoryIsNoEscape) {
  for (const EntryKind kind : {EntryKind::file, EntryKind::other}) {
    FakeGuest guest({{"/a", kDirectory}, {"/a/f", kind}});
    try {
      refuse_symlinked_parents(guest.stat(), "f/x", "/a");
      ADD_FAILURE() << "nothing was refused";
    } catch (const SandboxFileError& error) {
      EXPECT_EQ(error.error_number(), ENOTDIR);
    }
  }
}

TEST(RefuseSymlinkedParents, AMissingParentEndsTheWalk) {
  FakeGuest guest({{"/a", kDirectory}});
  refuse_symlinked_parents(guest.stat(), "missing/deeper/x", "/a");
  EXPECT_EQ(guest.asked, (Strings{"/a", "/a/missing"}));
}

TEST(RefuseSymlinkedParents, ThePathItselfIsWalkedOnlyWhenAskedFor) {
  FakeGuest guest({{"/a", kDirectory}, {"/a/l", kLink}});
  refuse_symlinked_parents(guest.stat(), "l", "/a");
  expect_refusal<SandboxPathRefused>(
      [&] { refuse_symlinked_parents(guest.stat(), "l", "/a", IncludeSelf::yes); },
      "symbolic link");
}

TEST(RefuseSymlinkedParents, ALinkedWorkingDirectoryIsRefused) {
  FakeGuest guest({{"/a", kLink}});
  expect_refusal<SandboxPathRefused>([&] { refuse_symlinked_parents(guest.stat(), "x", "/a"); },
                                     "symbolic link");
  expect_refusal<SandboxPathRefused>(
      [&] { refuse_symlinked_parents(guest.stat(), "", "/a", IncludeSelf::yes); }, "symbolic link");
}

TEST(ConfineGuestWritePath, RefusesTheDirectoryItselfAndALinkedLeaf) {
  FakeGuest guest({{"/a", kDirectory}, {"/a/l", kLink}, {"/a/d", kDirectory}});
  expect_refusal<SandboxPathRefused>([&] { confine_guest_write_path(guest.stat(), "x/..", "/a/"); },
                                     "the working directory itself");
  expect_refusal<SandboxPathRefused>([&] { confine_guest_write_path(guest.stat(), "l", "/a"); },
                                     "names a symbolic link");
  expect_refusal<SandboxPathRefused>([&] { confine_guest_write_path(guest.stat(), "l/x", "/a"); },
                                     "through a symbolic link");
  expect_outside("/a/secret", "/b");
}

TEST(ConfineGuestWritePath, GivesTheAbsolutePath) {
  FakeGuest guest({{"/a", kDirectory}, {"/a/d", kDirectory}});
  EXPECT_EQ(confine_guest_write_path(guest.stat(), "n/x", "/a"), "/a/n/x");
  // A directory is the write's own error to report.
  EXPECT_EQ(confine_guest_write_path(guest.stat(), "d", "/a"), "/a/d");
}

// IN-04
TEST(ShellQuote, KeepsEveryByteOfAWord) {
  EXPECT_EQ(shell_quote("plain-1.txt"), "plain-1.txt");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("$(echo injected)"), "'$(echo injected)'");
  EXPECT_EQ(shell_quote("x';touch pwn;'.txt"), "'x'\\'';touch pwn;'\\''.txt'");
  EXPECT_EQ(shell_quote("~"), "'~'");
  EXPECT_EQ(shell_quote("a\nb"), "'a\nb'");
  EXPECT_EQ(shell_join({"echo", "a b", ""}), "echo 'a b' ''");
  EXPECT_EQ(shell_join({}), "");
}

}  // namespace
}  // namespace casemate
