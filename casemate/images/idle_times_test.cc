#include "casemate/images/idle_times.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "casemate/sys/unique_fd.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr seconds kDay = hours(24);
constexpr seconds kYear = 365 * kDay;

// A machine whose clocks the test moves.
class Idle : public testing::Test {
 protected:
  void pass(seconds time) {
    now_.running += time;
    now_.wall += time;
  }
  void boot_again(seconds off) {
    now_.boot += "again";
    now_.running = seconds(5);
    now_.wall += off;
  }
  std::int64_t now() const { return now_.wall.count(); }

  std::vector<seconds> look(const std::vector<UsedThing>& things) {
    const sys::UniqueFd directory(
        open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const IdleTimes times(directory.get(), things, 7 * kDay, now_);
    times.write();
    return times.idle();
  }
  seconds look_at(std::int64_t used) { return look({{.name = "it", .used = used}}).front(); }

  Scratch scratch_;
  Clocks now_{.boot = "first", .running = seconds(1000), .wall = seconds(1'700'000'000)};
};

TEST_F(Idle, IsCountedFromOneLookToTheNext) {
  const std::int64_t old = now() - 1000;
  EXPECT_EQ(look_at(old), seconds(0)) << "nobody looked before";
  pass(10 * kDay);
  EXPECT_EQ(look_at(old), 10 * kDay);
  pass(kDay);
  EXPECT_EQ(look_at(old), 11 * kDay);
  const std::int64_t used = now();
  pass(3 * kDay);
  EXPECT_THAT(look({{"it", used}, {"old", old}, {"new", now() - 60}}),
              ElementsAre(3 * kDay, seconds(0), seconds(60)))
      << "what is older than the last look that did not see it is not believed";
}

TEST_F(Idle, IsNotMadeLongerByAClockThatIsSetForwards) {
  const std::int64_t used = now();
  look_at(used);
  pass(kDay);
  const std::int64_t later = now();
  now_.wall += 10 * kYear;
  EXPECT_THAT(look({{"it", used}, {"later", later}, {"after", now()}}),
              ElementsAre(kDay, seconds(0), seconds(0)));
  pass(2 * kDay);
  EXPECT_THAT(look({{"it", used}, {"later", later}}), ElementsAre(3 * kDay, 2 * kDay));
}

TEST_F(Idle, GoesOnAfterAClockThatIsSetBackwards) {
  const std::int64_t before = now();
  look_at(before);
  pass(kDay);
  const std::int64_t used = now();
  now_.wall -= 10 * kYear;
  EXPECT_THAT(look({{"it", before}, {"other", used}}), ElementsAre(kDay, seconds(0)));
  pass(40 * kDay);
  EXPECT_THAT(look({{"it", before}, {"other", used}}), ElementsAre(41 * kDay, 40 * kDay));
  EXPECT_THAT(look({{"it", now() - 60}}), ElementsAre(seconds(0)))
      << "used since, and before this look by a clock that agrees, but before the last one";
}

TEST_F(Idle, OfWhatWasUsedWhileTheClockWasWrongIsNotAtAll) {
  look({});
  pass(60 * kDay);
  // Years back when it was used, and right again at the look.
  EXPECT_EQ(look_at(now() - 10 * kYear.count()), seconds(0));
  pass(60 * kDay);
  EXPECT_EQ(look_at(now() + 10 * kYear.count()), seconds(0));
}

TEST_F(Idle, AgreesWithAClockThatIsSetRightInPassing) {
  look({});
  pass(kDay);
  const std::int64_t used = now();
  now_.wall += hours(1);
  pass(kDay);
  EXPECT_EQ(look_at(used), kDay + hours(1));
  now_.wall += seconds(3601);
  pass(kDay);
  EXPECT_EQ(look({{"other", now() - 60}}).front(), seconds(0));
}

TEST_F(Idle, CountsATimeWithoutTheMachineByTheWallClockAndBounded) {
  const std::int64_t used = now();
  look_at(used);
  boot_again(2 * kDay);
  EXPECT_EQ(look_at(used), 2 * kDay);
  boot_again(50 * kYear);
  EXPECT_EQ(look_at(used), 9 * kDay);
  boot_again(-100 * kYear);
  EXPECT_EQ(look_at(used), 9 * kDay);
  pass(kDay);
  EXPECT_EQ(look_at(used), 10 * kDay);
  boot_again(kDay);
  EXPECT_EQ(look_at(now() - 3600), seconds(0)) << "used by the clock of a start nobody looked at";
  now_.boot.clear();
  pass(kDay);
  EXPECT_EQ(look_at(used), seconds(0));
  pass(kDay);
  EXPECT_EQ(look_at(used), kDay) << "where no start is known each look is over one";
}

TEST_F(Idle, BeginsAnewWithARecordThatCannotBeRead) {
  const std::int64_t used = now();
  look_at(used);
  pass(kDay);
  for (const char* text : {"", "{", "[]", R"({"boot":1})",
                           R"({"boot":"first","running":0,"wall":0,"things":{"it":[1]}})"}) {
    std::ofstream(scratch_ / kIdleTimesName, std::ios::trunc) << text;
    EXPECT_EQ(look_at(used), seconds(0)) << text;
    pass(kDay);
    EXPECT_EQ(look_at(used), kDay) << text;
  }
}

TEST_F(Idle, TakesNoNumberForTooLarge) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t number : {kMost, kLeast}) {
    std::ofstream(scratch_ / kIdleTimesName, std::ios::trunc)
        << R"({"boot":"first","running":)" << number << R"(,"wall":)" << number
        << R"(,"things":{"it":[)" << number << "," << number << "]}}";
    look({{"it", number}, {"other", kMost}, {"third", kLeast}});
    EXPECT_THAT(look({{"it", number}, {"other", kMost}, {"third", kLeast}}).at(1), seconds(0));
  }
}

TEST(Clocks, AreThisMachines) {
  const Clocks first = read_clocks();
  EXPECT_EQ(first.boot.size(), 37U);
  EXPECT_GT(first.running, seconds(0));
  EXPECT_GT(first.wall, seconds(1'700'000'000));
  EXPECT_EQ(first.boot, read_clocks().boot);
}

}  // namespace
}  // namespace casemate::images
