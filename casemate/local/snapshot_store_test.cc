#include "casemate/local/snapshot_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::local {
namespace {

class SnapshotStore : public testing::Test {
 protected:
  SnapshotStore() {
    char name[] = "/tmp/casemate-snapshots-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~SnapshotStore() override { std::filesystem::remove_all(path_); }

  static Record source() {
    Record record;
    record.id = "0011223344556677";
    record.key = {"s", "t", "a"};
    record.kind = "k";
    return record;
  }
  std::shared_ptr<const StateDirectory> place() const {
    return std::make_shared<const StateDirectory>(path_.string());
  }
  bool is_kept(const std::string& id) const {
    return std::filesystem::exists(path_ / "snapshots" / id);
  }

  std::filesystem::path path_;
};

TEST_F(SnapshotStore, OneThatNobodyHoldsIsOverThoughItsFileIsThere) {
  const auto at = place();
  NewSnapshot taken(at->snapshots(), source(), 1);
  taken.append("bytes");
  std::optional<FileLock> lock = taken.keep();
  ASSERT_TRUE(lock);
  auto kept = KeptSnapshot::open(at->snapshots(), taken.id());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->next(), "bytes");
  EXPECT_TRUE(kept->is_there());
  lock.reset();
  EXPECT_FALSE(KeptSnapshot::open(at->snapshots(), taken.id()));
  EXPECT_TRUE(is_kept(taken.id()));
  sweep_snapshots(at->snapshots());
  EXPECT_FALSE(is_kept(taken.id()));
  EXPECT_FALSE(kept->is_there());
}

TEST_F(SnapshotStore, TheyGoWithWhoTookThemAndNotWithItsForks) {
  const auto at = place();
  NewSnapshot taken(at->snapshots(), source(), 1);
  std::optional<FileLock> lock = taken.keep();
  ASSERT_TRUE(lock);
  auto mine = std::make_unique<TakenSnapshots>();
  mine->put(taken.id(), at, *std::move(lock));
  const pid_t child = fork();
  if (child == 0) {
    mine.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(KeptSnapshot::open(at->snapshots(), taken.id()));
  mine.reset();
  EXPECT_FALSE(is_kept(taken.id()));
}

// 0: as it should be; 2: no file system of its own could be had.
int fill_a_small_file_system(const std::string& path, const Record& source) {
  if (unshare(CLONE_NEWNS) < 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
      mount("tmpfs", path.c_str(), "tmpfs", 0, "size=8m,mode=700") < 0) {
    return 2;
  }
  const StateDirectory at(path);
  NewSnapshot taken(at.snapshots(), source, 1);
  const std::string piece(64 * 1024, 'x');
  try {
    while (true) taken.append(piece);
  } catch (const SandboxUnavailable& refused) {
    const auto left = std::filesystem::space(path).available;
    const bool named = refused.message().find("2097152 to others") != std::string_view::npos &&
                       refused.hint().find("state_dir") != std::string_view::npos;
    return named && left >= snapshot_reserve(8 << 20) && taken.bytes() > (5 << 20) ? 0 : 1;
  }
}

TEST_F(SnapshotStore, TheyLeaveRoomForOthersWhereTheyAreKept) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a small file system needs root";
  const pid_t child = fork();
  if (child == 0) _exit(fill_a_small_file_system(path_.string(), source()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no mount namespace can be had";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SnapshotReserve, IsAQuarterButNoMoreThanAGibibyte) {
  EXPECT_EQ(snapshot_reserve(0), 0U);
  EXPECT_EQ(snapshot_reserve(100), 25U);
  EXPECT_EQ(snapshot_reserve(std::uint64_t{1} << 50), std::uint64_t{1} << 30);
}

}  // namespace
}  // namespace casemate::local
