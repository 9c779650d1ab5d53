#include "casemate/kinds/codeact/manifest.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::codeact {
namespace {

// A provider that says one thing and gives another.
class LyingFiles final : public GuestFiles {
 public:
  LyingFiles(std::optional<std::uint64_t> size, std::string content)
      : size_(size), content_(std::move(content)) {}

  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view,
                                        const CallControl&) override {
    return SandboxEntry{std::string(path), EntryKind::file, size_};
  }
  std::string read_file(std::string_view, std::string_view, std::uint64_t,
                        const CallControl&) override {
    return content_;
  }
  void write_file(std::string_view, std::span<const char>, std::string_view,
                  const CallControl&) override {}
  void remove(std::string_view, std::string_view, Recursive, const CallControl&) override {}
  std::vector<SandboxEntry> list_dir(std::string_view, std::string_view,
                                     const CallControl&) override {
    return {};
  }

 private:
  std::optional<std::uint64_t> size_;
  std::string content_;
};

constexpr std::string_view kList = R"({"outputs":[{"path":"a"}]})";

Manifest read(std::optional<std::uint64_t> size) {
  LyingFiles files(size, std::string(kList));
  return read_manifest(files, "/workspace/0/work", kDefaultTransferLimits, {});
}

TEST(CodeactManifest, OfUnknownSizeIsNotRead) {
  expect_refusal<SandboxOutputSizeUnknown>([] { read(std::nullopt); }, "outputs.json");
}

TEST(CodeactManifest, WithMoreBytesThanItsSizeIsRefused) {
  EXPECT_EQ(read(kList.size()).names, std::vector<std::string>{"a"});
  EXPECT_EQ(read(kList.size() + 1).bytes, kList.size());
  expect_refusal<SandboxTransferCapExceeded>([] { read(kList.size() - 1); }, "grew");
}

TEST(CodeactManifest, LeavesABudgetThatNeverGoesBelowZero) {
  Manifest manifest;
  manifest.bytes = 10;
  EXPECT_EQ(manifest.budget({5, 12, 3}), (TransferLimits{5, 2, 2}));
  EXPECT_EQ(manifest.budget({5, 10, 1}), (TransferLimits{5, 0, 0}));
  EXPECT_EQ(manifest.budget({5, 9, 0}), (TransferLimits{5, 0, 0}));
}

}  // namespace
}  // namespace casemate::codeact
