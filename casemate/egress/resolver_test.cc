#include "casemate/egress/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>

namespace casemate {
namespace {

std::future<ResolverPool::Result> ask(ResolverPool& pool, const std::string& name) {
  auto promise = std::make_shared<std::promise<ResolverPool::Result>>();
  auto answer = promise->get_future();
  EXPECT_TRUE(pool.resolve(
      name, [promise](ResolverPool::Result result) { promise->set_value(std::move(result)); }));
  return answer;
}

TEST(ResolverPool, GivesWhatTheResolverGives) {
  ResolverPool pool([](const std::string& name, const std::stop_token&) {
    if (name == "bad.test") throw std::runtime_error("no such name");
    return std::vector<IpAddress>(name == "many.test" ? 20 : 1,
                                  IpAddress::parse("203.0.113.7").value());
  });
  EXPECT_EQ(ask(pool, "a.test").get().addresses.size(), 1U);
  EXPECT_EQ(ask(pool, "many.test").get().addresses.size(), kMaxAddresses);
  EXPECT_EQ(ask(pool, "bad.test").get().failure, "no such name");
}

// One thread more than there are would wait for ever in each look-up.
TEST(ResolverPool, LooksUpAsManyAtOnceAsItHasThreads) {
  auto together = std::make_shared<std::latch>(kMaxResolverThreads);
  ResolverPool pool([together](const std::string&, const std::stop_token&) {
    together->arrive_and_wait();
    return std::vector<IpAddress>();
  });
  std::vector<std::future<ResolverPool::Result>> answers;
  for (std::size_t index = 0; index < kMaxResolverThreads; ++index) {
    answers.push_back(ask(pool, "a.test"));
  }
  for (auto& answer : answers) EXPECT_FALSE(answer.get().failure);
}

TEST(ResolverPool, GoesWithoutWaitingForALookUpThatHangs) {
  auto begun = std::make_shared<std::promise<void>>();
  auto go_on = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<bool>>();
  {
    ResolverPool pool([begun, go_on, ended](const std::string&, const std::stop_token& stop) {
      begun->set_value();
      go_on->get_future().wait();
      ended->set_value(stop.stop_requested());
      return std::vector<IpAddress>();
    });
    pool.resolve("a.test", [](const ResolverPool::Result&) {});
    begun->get_future().wait();
  }
  go_on->set_value();
  EXPECT_TRUE(ended->get_future().get()) << "it was told that nobody waits";
}

TEST(ResolverPool, HoldsSoManyThatWaitAndNotOneMore) {
  auto begun = std::make_shared<std::latch>(kMaxResolverThreads);
  auto go_on = std::make_shared<std::latch>(1);
  ResolverPool pool([begun, go_on](const std::string&, const std::stop_token&) {
    if (!go_on->try_wait()) begun->count_down();
    go_on->wait();
    return std::vector<IpAddress>();
  });
  const auto nothing = [](const ResolverPool::Result&) {};
  for (std::size_t index = 0; index < kMaxResolverThreads; ++index) {
    ASSERT_TRUE(pool.resolve("a.test", nothing));
  }
  begun->wait();
  for (std::size_t index = 0; index < kMaxWaitingNames; ++index) {
    ASSERT_TRUE(pool.resolve("a.test", nothing));
  }
  EXPECT_FALSE(pool.resolve("a.test", nothing));
  go_on->count_down();
}

TEST(SystemResolver, AnswersAddressesAndFailsForNoName) {
  const EgressResolver resolver = system_resolver();
  const std::vector<IpAddress> loopback = resolver("127.0.0.1", {});
  ASSERT_EQ(loopback.size(), 1U) << "each once";
  EXPECT_EQ(loopback[0].text(), "127.0.0.1");
  EXPECT_THROW(resolver(std::string(300, 'a'), {}), std::runtime_error);
}

}  // namespace
}  // namespace casemate
