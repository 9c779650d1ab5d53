// What goes by itself, and what clocks that are set have to do with it.

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "casemate/images/store_fixture_test.h"

namespace casemate::images {
namespace {

using testing::ElementsAre;

class StoreInTime : public Store {
 protected:
  static constexpr std::chrono::seconds kDay = std::chrono::hours(24);
  static constexpr std::chrono::seconds kYears = 3650 * kDay;

  void pass(std::chrono::seconds time) {
    clocks_.running += time;
    clocks_.wall += time;
  }
  std::string import(ImageStore& store, const std::string& name) {
    if (!fs::exists(scratch_ / name)) {
      TestImage image;
      image.add(TarBuilder().file("name", name).finish());
      image.write_oci_layout(scratch_ / name);
    }
    return store.import(oci(name), {}).id;
  }
  // What is left once another image came.
  std::vector<std::string> left_by_another(ImageStore& store) {
    const std::string other = import(store, "other" + std::to_string(++others_));
    std::vector<std::string> left;
    for (const StoredImage& image : store.list()) {
      if (image.id != other) left.push_back(image.id);
    }
    store.remove(other);
    return left;
  }

  int others_ = 0;
};

TEST_F(StoreInTime, WhatNothingRanFromGoesAtTheNextImportAndNothingElse) {
  ImageStore store(options());
  const std::string busy = import(store, "busy");
  const std::string idle = import(store, "idle");
  const std::string fresh = import(store, "fresh");
  const HeldImage held = store.hold(oci("busy"), {});
  EXPECT_EQ(left_by_another(store).size(), 3U);
  pass(30 * kDay);
  EXPECT_EQ(left_by_another(store).size(), 3U) << "equal passes";
  pass(std::chrono::seconds(1));
  store.hold(oci("fresh"), {});  // used now
  EXPECT_THAT(left_by_another(store), testing::UnorderedElementsAre(busy, fresh));
  expect_nothing_left();

  ImageStoreOptions for_ever = options();
  for_ever.collection.unused_for = {};
  ImageStore keeping(for_ever);
  pass(40 * kDay);
  EXPECT_EQ(left_by_another(keeping).size(), 2U) << "by a rule that lets them stay";
}

TEST_F(StoreInTime, AClockThatIsSetForwardsTakesNothingThatWasUsedOfLate) {
  ImageStore store(options());
  const std::string in_use = import(store, "in use");
  const HeldImage held = store.hold(oci("in use"), {});
  const std::string unused = import(store, "unused");
  pass(kDay);
  const std::string just_come = import(store, "just come");
  clocks_.wall += kYears;
  EXPECT_EQ(left_by_another(store).size(), 3U);
  EXPECT_EQ(read(held, "name"), "in use");
  // From here on it goes as always.
  pass(30 * kDay);
  EXPECT_THAT(left_by_another(store), testing::UnorderedElementsAre(in_use, just_come));
  pass(kDay);
  EXPECT_THAT(left_by_another(store), ElementsAre(in_use));
}

TEST_F(StoreInTime, AClockThatIsSetBackwardsTakesNothingAndKeepsNothingForEver) {
  ImageStore store(options());
  const std::string in_use = import(store, "in use");
  const HeldImage held = store.hold(oci("in use"), {});
  const std::string unused = import(store, "unused");
  clocks_.wall -= kYears;
  const std::string just_come = import(store, "just come");
  EXPECT_EQ(left_by_another(store).size(), 3U);
  pass(20 * kDay);
  store.hold(oci("just come"), {});
  EXPECT_EQ(left_by_another(store).size(), 3U);
  pass(20 * kDay);
  EXPECT_THAT(left_by_another(store), testing::UnorderedElementsAre(in_use, just_come));
  pass(20 * kDay);
  EXPECT_THAT(left_by_another(store), ElementsAre(in_use));
}

TEST_F(StoreInTime, AStartOfTheMachineByAWrongClockTakesNothingThatWasUsedOfLate) {
  ImageStore store(options());
  const std::string before = import(store, "before");
  for (const std::chrono::seconds wrong : {kYears, -2 * kYears}) {
    clocks_.boot += "again";
    clocks_.running = {};
    clocks_.wall += wrong;
    store.hold(oci("before"), {});
    EXPECT_EQ(left_by_another(store).size(), 1U);
    // The network has the right time, when the machine has the network.
    store.hold(oci("before"), {});
    clocks_.wall -= wrong;
    EXPECT_EQ(left_by_another(store).size(), 1U);
  }
  pass(31 * kDay);
  EXPECT_TRUE(left_by_another(store).empty());
}

}  // namespace
}  // namespace casemate::images
