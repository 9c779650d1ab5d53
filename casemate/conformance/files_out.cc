// What the host reads is the guest's own file, never what a link of the guest's leads to.

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

using Entry = std::optional<SandboxEntry>;

SandboxEntry link_entry(std::string path) {
  return {.path = std::move(path), .kind = EntryKind::symlink, .size_bytes = {}};
}

void a_legitimate_read_still_works(Trial& trial) {
  trial.lay_out();
  expect_equal(
      "stat of real/inside.txt", trial.stat("real/inside.txt"),
      Entry({.path = "real/inside.txt", .kind = EntryKind::file, .size_bytes = kInside.size()}));
  expect_equal("the bytes of real/inside.txt", trial.read("real/inside.txt"), std::string(kInside));
}

void a_link_is_named_a_link(Trial& trial) {
  trial.lay_out();
  for (const char* name : {"link-file", "link-dir"}) {
    expect_equal(std::string("stat of ") + name, trial.stat(name), Entry(link_entry(name)));
  }
}

void a_link_is_never_read(Trial& trial) {
  trial.lay_out();
  expect_file_error("reading link-file", ELOOP, [&] { return trial.read("link-file"); });
}

void stat_through_a_linked_parent(Trial& trial) {
  trial.lay_out();
  expect_path_refused("stat of link-dir/secret.txt",
                      [&] { return trial.stat("link-dir/secret.txt"); });
}

void read_through_a_linked_parent(Trial& trial) {
  trial.lay_out();
  expect_path_refused("reading link-dir/secret.txt",
                      [&] { return trial.read("link-dir/secret.txt"); });
}

void look_in(Trial& trial, const std::string& name, const std::string& directory,
             const std::string& what) {
  trial.lay_out();
  expect_path_refused("stat in a working directory " + what,
                      [&] { return trial.stat(name, directory); });
  expect_path_refused("reading in a working directory " + what,
                      [&] { return trial.read(name, directory); });
}

void a_linked_working_directory(Trial& trial) {
  look_in(trial, "secret.txt", trial.work() + "/link-dir", "that is a link");
}

void a_linked_ancestor_of_the_working_directory(Trial& trial) {
  look_in(trial, "leaf.txt", trial.work() + "/link-dir/sub", "below a link");
}

void a_plain_parent_is_not_an_escape(Trial& trial) {
  trial.lay_out();
  expect_file_error("stat of plain.txt/x", ENOTDIR, [&] { return trial.stat("plain.txt/x"); });
  expect_file_error("reading plain.txt/x", ENOTDIR, [&] { return trial.read("plain.txt/x"); });
}

void listing_a_linked_directory(Trial& trial) {
  trial.lay_out();
  expect_path_refused("listing link-dir", [&] { return trial.list("link-dir"); });
}

void listing_through_a_linked_parent(Trial& trial) {
  trial.lay_out();
  expect_path_refused("listing link-dir/sub", [&] { return trial.list("link-dir/sub"); });
}

void listing_under_a_linked_ancestor(Trial& trial) {
  trial.lay_out();
  expect_path_refused("listing in a working directory below a link",
                      [&] { return trial.list(".", trial.work() + "/link-dir/sub"); });
}

void a_listing_names_its_links(Trial& trial) {
  trial.lay_out();
  const std::vector<SandboxEntry> expected{
      link_entry("link-dir"),
      link_entry("link-file"),
      {.path = "plain.txt", .kind = EntryKind::file, .size_bytes = kInside.size()},
      {.path = "real", .kind = EntryKind::directory, .size_bytes = {}}};
  expect_equal("the listing of the working directory", trial.list("."), expected);
}

}  // namespace

std::span<const Probe> files_out_probes() {
  constexpr std::optional<Capability> kListing = Capability::files_list;
  static constexpr auto kProbes = std::to_array<Probe>({
      {"a-legitimate-read-still-works", "a file of its own is found and read",
       a_legitimate_read_still_works},
      {"a-link-is-named-a-link", "stat tells a link as a link, without a size",
       a_link_is_named_a_link},
      {"a-link-is-never-read", "reading a link fails with ELOOP", a_link_is_never_read},
      {"stat-through-a-linked-parent", "stat goes through no linked directory",
       stat_through_a_linked_parent},
      {"read-through-a-linked-parent", "no read goes through a linked directory",
       read_through_a_linked_parent},
      {"a-linked-working-directory", "a working directory that is a link is not looked into",
       a_linked_working_directory},
      {"a-linked-ancestor-of-the-working-directory",
       "a working directory below a link is not looked into",
       a_linked_ancestor_of_the_working_directory},
      {"a-plain-parent-is-not-an-escape", "a file in the place of a directory is ENOTDIR",
       a_plain_parent_is_not_an_escape},
      {"listing-a-linked-directory", "a linked directory is not listed", listing_a_linked_directory,
       kListing},
      {"listing-through-a-linked-parent", "no listing goes through a linked directory",
       listing_through_a_linked_parent, kListing},
      {"listing-under-a-linked-ancestor", "a working directory below a link is not listed",
       listing_under_a_linked_ancestor, kListing},
      {"a-listing-names-its-links", "a listing is sorted, complete, and tells links as links",
       a_listing_names_its_links, kListing},
  });
  return kProbes;
}

}  // namespace casemate::conformance
