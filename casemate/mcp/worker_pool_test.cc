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
  std::latch house(1);
  pool.post_always([&] {
    house.wait();
    kept = true;
  });
  EXPECT_EQ(pool.stop(std::chrono::nanoseconds(0)), 2U) << "a job, and who keeps house";
  house.count_down();
  while (pool.stop(std::chrono::nanoseconds(0)) == 2U) {
  }
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

TEST(WorkerPool, AWithdrawnJobGivesUpItsPlace) {
  WorkerPool pool({.max_running = 1, .max_waiting = 1, .max_waiting_bytes = 10}, {});
  std::latch started(1);
  std::latch go(1);
  const auto running = pool.post(0, [&] {
    started.count_down();
    go.wait();
  });
  started.wait();
  const auto held = std::make_shared<int>(1);
  const auto waiting = pool.post(10, [held] { ADD_FAILURE() << "it was withdrawn"; });
  EXPECT_FALSE(pool.post(0, [] {}));
  pool.withdraw(running);
  pool.withdraw(waiting);
  pool.withdraw(waiting);
  pool.withdraw(0);
  EXPECT_EQ(held.use_count(), 1) << "what it held has gone";
  EXPECT_EQ(pool.waiting(), 0U);
  EXPECT_TRUE(pool.post(10, [] {}));
  go.count_down();
  EXPECT_EQ(pool.stop(kLong), 0U);
}

TEST(WorkerPool, AJobThatAThreadIsFreeForDoesNotWaitWhateverItHolds) {
  WorkerPool pool({.max_running = 1, .max_waiting = 0, .max_waiting_bytes = 10}, {});
  std::latch ran(1);
  EXPECT_TRUE(pool.post(1000, [&] { ran.count_down(); }));
  ran.wait();
  EXPECT_EQ(pool.stop(kLong), 0U);
}

TEST(WorkerPool, CallersTakeTurns) {
  WorkerPool pool({.max_running = 1}, {});
  std::latch started(1);
  std::latch go(1);
  pool.post(0, [&] {
    started.count_down();
    go.wait();
  });
  started.wait();
  std::string order;
  std::latch all(6);
  const auto post = [&](const char* caller) {
    pool.post(0,
              [&order, &all, caller] {
                order += caller;
                all.count_down();
              },
              {caller});
  };
  for (const char* caller : {"a", "a", "a", "a", "b", "b"}) post(caller);
  go.count_down();
  all.wait();
  EXPECT_EQ(order, "ababaa");
  EXPECT_EQ(pool.stop(kLong), 0U);
}

TEST(WorkerPool, NoneOfSeveralCallersTakesEveryPlace) {
  WorkerPool pool({.max_running = 4, .max_waiting = 4, .max_waiting_bytes = 100}, {});
  const JobOwner one{"one", Share::three_quarters};
  const JobOwner two{"two", Share::three_quarters};
  std::latch started(3);
  std::latch go(1);
  for (int count = 0; count < 3; ++count) {
    pool.post(
        0,
        [&] {
          started.count_down();
          go.wait();
        },
        one);
  }
  started.wait();
  EXPECT_FALSE(pool.post(76, [] {}, one)) << "too much memory for one";
  for (int count = 0; count < 3; ++count) EXPECT_TRUE(pool.post(0, [] {}, one));
  EXPECT_FALSE(pool.post(0, [] {}, one)) << "too many waiting of one";
  std::latch served(1);
  EXPECT_TRUE(pool.post(0, [&] { served.count_down(); }, two));
  served.wait();  // though all of the other's run and wait
  go.count_down();
  EXPECT_EQ(pool.stop(kLong), 0U);
}

TEST(WorkerPool, HousekeepingWaitsForNoJob) {
  WorkerPool pool({.max_running = 1}, {});
  std::latch started(1);
  std::latch go(1);
  pool.post(0, [&] {
    started.count_down();
    go.wait();
  });
  started.wait();
  std::latch kept(1);
  pool.post_always([&] { kept.count_down(); });
  kept.wait();
  go.count_down();
  EXPECT_EQ(pool.stop(kLong), 0U);
}

}  // namespace
}  // namespace casemate::mcp
