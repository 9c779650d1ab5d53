// What is taken for a file that has arrived, from a provider that may say anything.

#include "casemate/host_tools/over_exec_provider.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

// One file; neither its entry nor its bytes need be true.
class OneFile final : public GuestFiles {
 public:
  void write_file(std::string_view, std::span<const char>, std::string_view,
                  const CallControl&) override {}
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view,
                                        const CallControl&) override {
    return SandboxEntry{std::string(path), EntryKind::file, size};
  }
  std::string read_file(std::string_view, std::string_view, std::uint64_t,
                        const CallControl&) override {
    return read();
  }
  void remove(std::string_view, std::string_view, Recursive, const CallControl&) override {}
  std::vector<SandboxEntry> list_dir(std::string_view, std::string_view,
                                     const CallControl&) override {
    return {};
  }

  Arrival arrive(std::uint64_t max_bytes) {
    return read_arrival(*this, "/a/b", "/a", max_bytes, {});
  }

  std::optional<std::uint64_t> size = 4;
  std::function<std::string()> read = [] { return "four"; };
};

TEST(Arrival, AtTheBoundIsHereAndOneByteMoreIsTooLarge) {
  OneFile file;
  EXPECT_EQ(file.arrive(4).bytes, "four");
  const Arrival over = file.arrive(3);
  EXPECT_EQ(over.state, Arrival::State::too_large);
  EXPECT_EQ(over.size, 4U);
}

TEST(Arrival, OfASizeThatNobodyVouchesForIsTooLargeAndNotRead) {
  OneFile file;
  file.size.reset();
  file.read = []() -> std::string { throw SandboxUnavailable("it was read"); };
  const Arrival unknown = file.arrive(4);
  EXPECT_EQ(unknown.state, Arrival::State::too_large);
  EXPECT_FALSE(unknown.size);
}

TEST(Arrival, OfMoreBytesThanWereAskedForIsTooLarge) {
  OneFile file;
  file.read = [] { return "five!"; };
  const Arrival over = file.arrive(4);
  EXPECT_EQ(over.state, Arrival::State::too_large);
  EXPECT_TRUE(over.bytes.empty());
  EXPECT_EQ(over.size, 5U);
}

TEST(Arrival, ThatIsEmptyOnceItIsReadIsNotYetThere) {
  OneFile file;
  file.read = [] { return std::string(); };
  EXPECT_EQ(file.arrive(4).state, Arrival::State::not_yet);
}

TEST(Arrival, LetsPassWhatAProviderRefusesForAnotherReason) {
  OneFile file;
  file.read = []() -> std::string { throw SandboxFileError("no such file", ENOENT); };
  EXPECT_EQ(file.arrive(4).state, Arrival::State::not_yet);
  file.read = []() -> std::string { throw SandboxFileError("denied", EACCES); };
  expect_refusal<SandboxFileError>([&] { file.arrive(4); }, "denied");
}

}  // namespace
}  // namespace casemate
