// What the host writes arrives, and arrives nowhere else.

#include <array>
#include <string>

#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

using Bytes = std::optional<std::string>;

void a_write_lands_and_reads_back(Trial& trial) {
  trial.write("note.txt", "a note\n");
  expect_equal("what a program finds in note.txt", trial.look(trial.work() + "/note.txt"),
               Bytes("a note\n"));
  if (!trial.declares(Capability::files_out)) return;
  expect_equal("what read_file gives for note.txt", trial.read("note.txt"),
               std::string("a note\n"));
}

void bytes_survive_the_round_trip(Trial& trial) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  trial.write("bytes.bin", every);
  expect_equal("all 256 values of a byte", trial.look(trial.work() + "/bytes.bin"), Bytes(every));
}

void text_is_utf8(Trial& trial) {
  const std::string text = "\xc5\xbelu\xc5\xa5ou\xc4\x8dk\xc3\xbd \xf0\x9f\x90\x8e\r\nend";
  trial.write("text.txt", text);
  expect_equal("text of two to four bytes a character", trial.look(trial.work() + "/text.txt"),
               Bytes(text));
}

void a_second_write_replaces(Trial& trial) {
  trial.write("again.txt", "the first, and longer");
  trial.write("again.txt", "second");
  expect_equal("the file after a second, shorter write", trial.look(trial.work() + "/again.txt"),
               Bytes("second"));
}

void parents_are_created(Trial& trial) {
  trial.write("a/b/c.txt", "deep");
  expect_equal("a/b/c.txt where no directory was", trial.look(trial.work() + "/a/b/c.txt"),
               Bytes("deep"));
}

void a_path_outside_is_refused(Trial& trial) {
  trial.lay_out();
  for (const std::string& path :
       {std::string("../work-outside/secret.txt"), std::string("a/../../work-outside/new.txt"),
        trial.outside() + "/new.txt"}) {
    expect_path_refused("writing '" + path + "'", [&] { trial.write(path, "escaped\n"); });
  }
  trial.expect_outside_untouched("after writes to paths outside", {"new.txt"});
}

void a_path_through_a_linked_parent_is_refused(Trial& trial) {
  trial.lay_out();
  for (const char* path : {"link-dir/secret.txt", "link-dir/new.txt", "link-dir/sub/new.txt"}) {
    expect_path_refused(std::string("writing ") + path, [&] { trial.write(path, "escaped\n"); });
  }
  trial.expect_outside_untouched("after writes through a link", {"new.txt", "sub/new.txt"});
}

void a_linked_destination_is_refused_not_followed(Trial& trial) {
  trial.lay_out_with(
      {{.path = trial.work() + "/dangling", .link_to = trial.outside() + "/new.txt"}});
  for (const char* path : {"link-file", "dangling"}) {
    expect_path_refused(std::string("writing ") + path, [&] { trial.write(path, "escaped\n"); });
  }
  trial.expect_outside_untouched("after writes to links", {"new.txt"});
}

void the_working_directory_is_refused(Trial& trial) {
  for (const std::string& path : {std::string(), std::string("."), trial.work()}) {
    expect_path_refused("writing '" + path + "', the working directory itself",
                        [&] { trial.write(path, "escaped\n"); });
  }
}

void a_backslash_is_refused(Trial& trial) {
  for (const char* path : {"a\\b.txt", "..\\work-outside\\new.txt"}) {
    expect_path_refused(std::string("writing '") + path + "'",
                        [&] { trial.write(path, "escaped\n"); });
  }
}

void a_linked_working_directory(Trial& trial) {
  trial.lay_out();
  expect_path_refused("writing new.txt in a working directory that is a link",
                      [&] { trial.write("new.txt", "escaped\n", trial.work() + "/link-dir"); });
  trial.expect_outside_untouched("after a write in a linked directory", {"new.txt"});
}

void a_linked_ancestor_of_the_working_directory(Trial& trial) {
  trial.lay_out();
  expect_path_refused("writing new.txt in a working directory below a link",
                      [&] { trial.write("new.txt", "escaped\n", trial.work() + "/link-dir/sub"); });
  trial.expect_outside_untouched("after a write below a linked directory", {"sub/new.txt"});
}

}  // namespace

std::span<const Probe> files_in_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {"a-write-lands-and-reads-back", "what is written is there, byte for byte",
       a_write_lands_and_reads_back},
      {"bytes-survive-the-round-trip", "every byte value arrives as it is",
       bytes_survive_the_round_trip},
      {"str-content-is-utf8", "text arrives as UTF-8, its line ends unchanged", text_is_utf8},
      {"a-second-write-replaces", "a write over a file leaves nothing of the old one",
       a_second_write_replaces},
      {"parents-are-created", "directories above a file are made", parents_are_created},
      {"a-path-outside-is-refused", "a path outside the working directory is not written",
       a_path_outside_is_refused},
      {"a-path-through-a-linked-parent-is-refused", "no write goes through a linked directory",
       a_path_through_a_linked_parent_is_refused},
      {"a-linked-destination-is-refused-not-followed", "no write goes through a link to a file",
       a_linked_destination_is_refused_not_followed},
      {"the-working-directory-is-refused", "the working directory itself is not written",
       the_working_directory_is_refused},
      {"a-backslash-is-refused", "a backslash in a path is refused, not read as a separator",
       a_backslash_is_refused},
      {"a-linked-working-directory", "a working directory that is a link is not written into",
       a_linked_working_directory},
      {"a-linked-ancestor-of-the-working-directory",
       "a working directory below a link is not written into",
       a_linked_ancestor_of_the_working_directory},
  });
  return kProbes;
}

}  // namespace casemate::conformance
