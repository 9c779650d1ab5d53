#include "casemate/mcp/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace casemate::mcp {
namespace {

constexpr std::chrono::seconds kLong{30};

TEST(WorkerPool, RunsAtMostSoManyAtATimeAndBoundsWhatWaits) {
  WorkerPool pool({.max_running = 2, .max_waiting = 2, .max_waiting_bytes = 10}, {});
  std::latch started(2);
  std::latch go(1);
  std::atomic<int> ran = 0;
  for (int at = 0; at < 2; ++at) {
    EXPECT_TRUE(pool.post(1, [&] {
      started.count_down();
      go.wait();
      ++ran;
    }));
  }
  started.wait();
  EXPECT_FALSE(pool.post(11, [] {})) << "too many bytes";
  EXPECT_TRUE(pool.post(9, [&] { ++ran; }));
  EXPECT_FALSE(pool.post(2, [] {}));
  EXPECT_TRUE(pool.post(1, [&] { ++ran; }));
  EXPECT_FALSE(pool.post(0, [] {})) << "too many";
  EXPECT_EQ(ran, 0);
  std::latch last(1);
  pool.post_always([&] { last.count_down(); });
  go.count_down();
  last.wait();
  EXPECT_EQ(pool.stop(kLong), 0U);
}

TEST(WorkerPool, DropsWhatWaitsAtItsEndButForHousekeeping) {
  WorkerPool pool({.max_running = 1}, {});
  std::latch started(1);
  std::latch go(1);
  std::atomic<bool> dropped = true;
  std::atomic<bool> kept = false;
  pool.post(0, [&] {
    started.count_down();
    go.wait();
  });
  started.wait();
  pool.post(0, [&] { dropped = false; });
  pool.post_always([&] { kept = true; });
  EXPECT_EQ(pool.stop(std::chrono::nanoseconds(0)), 1U);
  EXPECT_FALSE(pool.post(0, [] {}));
  go.count_down();
  EXPECT_EQ(pool.stop(kLong), 0U);
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(kept);
  bool late = false;
  pool.post_always([&] { late = true; });
  EXPECT_TRUE(late);
}

TEST(WorkerPool, GoesOnAfterAJobThatThrew) {
  std::atomic<int> logged = 0;
  WorkerPool pool({.max_running = 1}, [&](LogLevel, std::string_view) { ++logged; });
  pool.post(0, [] { throw std::runtime_error("broken"); });
  std::latch after(1);
  pool.post(0, [&] { after.count_down(); });
  after.wait();
  EXPECT_EQ(logged, 1);
}

}  // namespace
}  // namespace casemate::mcp
