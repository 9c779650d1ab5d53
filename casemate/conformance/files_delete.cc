// What is removed is what was named, and nothing that a link of the guest's leads to.

#include <array>
#include <cerrno>
#include <string>

#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

std::string with(Recursive recursive) {
  return recursive == Recursive::yes ? " with recursive" : " without recursive";
}

void a_removal_removes(Trial& trial) {
  trial.lay_out();
  trial.remove("plain.txt", Recursive::no);
  trial.expect_gone("after its removal", {"plain.txt"});
  trial.expect_there("the bystander", {"real/inside.txt"});
}

void a_missing_path_is_success(Trial& trial) {
  trial.lay_out();
  trial.remove("plain.txt", Recursive::no);
  for (const char* path : {"plain.txt", "never/was"}) {
    for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
      try {
        trial.remove(path, recursive);
      } catch (const std::exception& error) {
        throw Unmet(std::string("removing '") + path + "', which is not there" + with(recursive),
                    "success", error.what());
      }
    }
  }
}

void a_link_is_removed_never_followed(Trial& trial) {
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    trial.lay_out();
    trial.remove("link-dir", recursive);
    trial.remove("link-file", recursive);
    // Where they led there is something, so a link that is still there shows it.
    trial.expect_gone("after the removal of the links" + with(recursive),
                      {"link-dir/secret.txt", "link-file"});
    trial.expect_outside_untouched("after links to it were removed" + with(recursive));
  }
}

void a_path_through_a_linked_parent_is_refused(Trial& trial) {
  trial.lay_out();
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    for (const char* path : {"link-dir/secret.txt", "link-dir/sub"}) {
      expect_path_refused(std::string("removing ") + path + with(recursive),
                          [&] { trial.remove(path, recursive); });
    }
  }
  trial.expect_outside_untouched("after removals through a link");
}

void a_directory_needs_recursive(Trial& trial) {
  trial.lay_out();
  expect_file_error("removing the directory real without recursive", EISDIR,
                    [&] { trial.remove("real", Recursive::no); });
  trial.expect_there("after the refusal", {"real/inside.txt"});
}

void an_empty_directory_needs_recursive(Trial& trial) {
  trial.lay_out();
  trial.remove("real/inside.txt", Recursive::no);
  expect_file_error("removing an empty directory without recursive", EISDIR,
                    [&] { trial.remove("real", Recursive::no); });
  trial.remove("real", Recursive::yes);
  // A file can take the name only when the directory is gone.
  trial.plant({{.path = trial.work() + "/real", .bytes = std::string(kInside)}});
  trial.expect_there("a file in the place of the removed directory", {"real"});
}

void recursive_removes_the_tree(Trial& trial) {
  trial.lay_out_with({{.path = trial.work() + "/tree/a/b.txt", .bytes = std::string(kInside)},
                      {.path = trial.work() + "/tree/c.txt", .bytes = std::string(kInside)}});
  trial.remove("tree", Recursive::yes);
  trial.expect_gone("after the removal of tree", {"tree/a/b.txt", "tree/c.txt"});
  trial.expect_there("the bystander", {"plain.txt"});
}

void a_link_inside_a_recursive_removal_is_unlinked_not_followed(Trial& trial) {
  trial.lay_out_with(
      {{.path = trial.work() + "/tree/own.txt", .bytes = std::string(kInside)},
       {.path = trial.work() + "/tree/a", .link_to = trial.outside()},
       {.path = trial.work() + "/tree/z", .link_to = trial.outside() + "/secret.txt"}});
  trial.remove("tree", Recursive::yes);
  trial.expect_gone("after the removal of tree", {"tree/own.txt"});
  trial.expect_outside_untouched("after the removal of a tree with links to it");
}

void the_working_directory_is_refused(Trial& trial) {
  trial.lay_out();
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    for (const std::string& path : {std::string(), std::string("."), trial.work()}) {
      expect_path_refused("removing '" + path + "', the working directory itself" + with(recursive),
                          [&] { trial.remove(path, recursive); });
    }
  }
  trial.expect_there("after the refusals", {"plain.txt"});
}

void a_path_outside_is_refused(Trial& trial) {
  trial.lay_out();
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    for (const std::string& path :
         {std::string("../work-outside/secret.txt"), trial.outside(), std::string("..")}) {
      expect_path_refused("removing '" + path + "'" + with(recursive),
                          [&] { trial.remove(path, recursive); });
    }
  }
  trial.expect_outside_untouched("after removals of paths outside");
}

}  // namespace

std::span<const Probe> files_delete_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {"a-removal-removes", "what is removed is gone, and nothing beside it", a_removal_removes},
      {"a-missing-path-is-success", "removing what is not there is no failure",
       a_missing_path_is_success},
      {"a-link-is-removed-never-followed", "a link is removed itself",
       a_link_is_removed_never_followed},
      {"a-path-through-a-linked-parent-is-refused", "no removal goes through a linked directory",
       a_path_through_a_linked_parent_is_refused},
      {"a-directory-needs-recursive", "a directory is EISDIR without recursive",
       a_directory_needs_recursive},
      {"an-empty-directory-needs-recursive", "so is an empty one",
       an_empty_directory_needs_recursive},
      {"recursive-removes-the-tree", "with recursive all below goes, and nothing beside",
       recursive_removes_the_tree},
      {"a-link-inside-a-recursive-removal-is-unlinked-not-followed",
       "links in a removed tree are unlinked, never followed",
       a_link_inside_a_recursive_removal_is_unlinked_not_followed},
      {"the-working-directory-is-refused", "the working directory itself is not removed",
       the_working_directory_is_refused},
      {"a-path-outside-is-refused", "a path outside the working directory is not removed",
       a_path_outside_is_refused},
  });
  return kProbes;
}

}  // namespace casemate::conformance
