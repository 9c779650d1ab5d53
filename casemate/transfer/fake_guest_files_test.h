#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/sandbox.h"

namespace casemate {

// A guest's files as the test says, and what was asked of them. It checks nothing itself: the
// subject is what the host makes of the answers.
class FakeGuestFiles : public GuestFiles {
 public:
  struct File {
    std::string content = {};
    EntryKind kind = EntryKind::file;
    std::optional<std::uint64_t> size = {};  // what stat says; by default the content's
    bool size_known = true;
    std::function<void()> on_stat = {};  // may throw
    std::function<void()> on_read = {};  // may throw
    bool ignores_cap = false;            // a provider that buffers first
  };

  std::map<std::string, File, std::less<>> files;
  std::vector<std::string> asked;  // "stat a", "read a 5"
  std::string directory;           // the last working directory

  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view working_directory,
                                        const CallControl&) override {
    asked.push_back("stat " + std::string(path));
    directory = working_directory;
    const auto found = files.find(path);
    if (found == files.end()) {
      return std::nullopt;
    }
    const File& file = found->second;
    if (file.on_stat) {
      file.on_stat();
    }
    SandboxEntry entry{std::string(path), file.kind, std::nullopt};
    if (file.kind == EntryKind::file && file.size_known) {
      entry.size_bytes = file.size.value_or(file.content.size());
    }
    return entry;
  }

  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes, const CallControl&) override {
    asked.push_back("read " + std::string(path) + " " + std::to_string(max_bytes));
    directory = working_directory;
    const File& file = files.at(std::string(path));
    if (file.on_read) {
      file.on_read();
    }
    if (file.content.size() > max_bytes && !file.ignores_cap) {
      throw SandboxTransferCapExceeded("the provider's own words");
    }
    return file.content;
  }

  void write_file(std::string_view, std::span<const char>, std::string_view,
                  const CallControl&) override {}
  void remove(std::string_view, std::string_view, Recursive, const CallControl&) override {}
  std::vector<SandboxEntry> list_dir(std::string_view, std::string_view,
                                     const CallControl&) override {
    return {};
  }
};

}  // namespace casemate
