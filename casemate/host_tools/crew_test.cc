#include "casemate/host_tools/crew.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <set>
#include <stdexcept>
#include <thread>

#include "casemate/host_tools/tools_test.h"
#include "casemate/sys/socket.h"

namespace casemate {
namespace {

using std::chrono::seconds;

TEST(Crew, AlwaysHasAThreadLeftThatIsNotBusy) {
  Crew crew{Log{}};
  Gate gate;
  for (int i = 1; i <= 10; ++i) {
    crew.post([&] {
      const Crew::Busy busy(crew);
      gate.pass();
    });
    gate.await(i);
  }
  std::promise<void> done;
  crew.post([&] { done.set_value(); });
  done.get_future().wait();
  gate.open();
  EXPECT_EQ(crew.stop(seconds(60)), 0U);
}

TEST(Crew, ReportsADescriptorOnceUntilItIsArmedAnew) {
  auto [near, far] = sys::socket_pair(sys::SocketType::stream);
  Crew crew{Log{}};
  std::atomic<int> reports = 0;
  std::promise<void> first;
  std::promise<void> second;
  const auto watched = crew.watch(far.get(), [&](std::uint64_t) {
    if (++reports == 1) first.set_value();
    if (reports == 2) second.set_value();
  });
  sys::send_message(near.get(), std::array{'x'}, {}, sys::Blocking::yes);
  first.get_future().wait();
  std::promise<void> between;
  crew.post([&] { between.set_value(); });
  between.get_future().wait();
  EXPECT_EQ(reports, 1);
  crew.rearm(far.get(), watched);
  second.get_future().wait();
  crew.forget(watched);
  crew.forget(watched);
}

TEST(Crew, ForgetsADescriptorAndDropsItsJob) {
  auto [near, far] = sys::socket_pair(sys::SocketType::stream);
  Crew crew{Log{}};
  const auto kept = std::make_shared<int>(1);
  const auto watched = crew.watch(far.get(), [kept](std::uint64_t) { FAIL(); });
  EXPECT_EQ(kept.use_count(), 2);
  crew.forget(watched);
  EXPECT_EQ(kept.use_count(), 1);
  sys::send_message(near.get(), std::array{'x'}, {}, sys::Blocking::yes);
  std::promise<void> done;
  crew.post([&] { done.set_value(); });
  done.get_future().wait();
}

TEST(Crew, RingsWhenTheTimeHasComeAndTheLaterSettingCounts) {
  Crew crew{Log{}};
  std::promise<void> rung;
  crew.on_alarm([&] { rung.set_value(); });
  crew.set_alarm(sys::SteadyTime::clock::now() + std::chrono::hours(1));
  crew.set_alarm(sys::SteadyTime::clock::now());
  rung.get_future().wait();
}

TEST(Crew, LogsWhatAJobThrowsAndGoesOn) {
  KeptLog log;
  Crew crew(log.hook());
  crew.post([] { throw std::runtime_error("one"); });
  crew.post([] { throw 2; });
  log.await("a job failed: one");
  log.await("no known kind");
}

TEST(Crew, StopDropsWhatWasNotBegunAndNamesWhoIsLeft) {
  const auto gate = std::make_shared<Gate>();
  const auto kept = std::make_shared<int>(1);
  {
    Crew crew{Log{}};
    crew.post([&crew, gate, kept] {
      const Crew::Busy busy(crew);
      gate->pass();
    });
    gate->await(1);
    EXPECT_EQ(crew.stop(std::chrono::milliseconds(1)), 1U);
    crew.post([kept] { FAIL(); });
    // It was waited for, once.
    EXPECT_EQ(crew.stop(std::chrono::hours(1)), 1U);
  }
  gate->open();
  while (kept.use_count() > 1) std::this_thread::yield();
}

TEST(Crew, APatienceWithoutEndIsNotOverAtOnce) {
  // The sum of it and the time that it is would lie in the past.
  Crew crew{Log{}};
  std::promise<void> busy;
  crew.post([&] {
    const Crew::Busy held(crew);
    busy.set_value();
    // What is posted to a crew that is stopping is dropped without being run.
    for (bool stopping = false; !stopping; std::this_thread::yield()) {
      const auto ran = std::make_shared<std::atomic<bool>>();
      crew.post([ran] { *ran = true; });
      stopping = ran.use_count() == 1 && !*ran;
    }
    for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
  });
  busy.get_future().wait();
  EXPECT_EQ(crew.stop(std::chrono::nanoseconds::max()), 0U);
}

TEST(Crew, ItsThreadsTakeNoSignals) {
  Crew crew{Log{}};
  std::promise<std::pair<bool, bool>> blocked;
  crew.post([&] {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    blocked.set_value({sigismember(&set, SIGTERM) == 1, sigismember(&set, SIGSEGV) == 1});
  });
  EXPECT_EQ(blocked.get_future().get(), std::pair(true, false));
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  EXPECT_EQ(sigismember(&here, SIGTERM), 0);
}

}  // namespace
}  // namespace casemate
