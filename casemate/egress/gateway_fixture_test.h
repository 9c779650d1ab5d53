#pragma once

// For tests: a gateway in the network of the test's own, and names that it knows.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/egress/gateway.h"
#include "casemate/egress/gateway_test.h"
#include "tests/support/own_network.h"

namespace casemate {

// A fatal `access_denied`.
inline constexpr std::string_view kAlert{"\x15\x03\x01\x00\x02\x02\x31", 7};

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Answers by table, and counts who asked.
struct Names {
  std::mutex mutex;
  std::map<std::string, std::vector<std::vector<std::string>>> answers;
  std::vector<std::string> asked;

  EgressResolver resolver() {
    return [this](const std::string& name, const std::stop_token&) {
      const std::lock_guard lock(mutex);
      asked.push_back(name);
      auto& turns = answers[name];
      if (turns.empty()) throw std::runtime_error("no such name");
      const std::vector<std::string> texts = turns.front();
      if (turns.size() > 1) turns.erase(turns.begin());
      std::vector<IpAddress> addresses;
      for (const std::string& text : texts) addresses.push_back(IpAddress::parse(text).value());
      return addresses;
    };
  }
};

class Gateway : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
    options_.resolver = names_.resolver();
    options_.call = "c0ffee";
    options_.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(names_.mutex);
      log_.emplace_back(line);
    };
    names_.answers["a.test"] = {{kPublicIpv4}};
  }

  void allow(const std::string& entry) { options_.allow.push_back(HostPattern::parse(entry)); }

  void serve() {
    gateway_ = std::make_unique<EgressGateway>(options_);
    address_ = sys::bind_to_fresh_name(gateway_->socket());
    gateway_->serve();
  }

  // Ended, so that every record is complete.
  std::vector<EgressRecord> records() {
    gateway_->close();
    return gateway_->records();
  }

  Door door() const { return Door(address_); }

  // So that the origin has seen it, too.
  void expect_echo(const std::string& host, std::uint16_t port) const {
    const Door client = door();
    ASSERT_EQ(client.code(host, port), EgressCode::opened);
    client.send("x");
    EXPECT_EQ(client.read(1), "x");
  }

  Names names_;
  std::vector<std::string> log_;
  EgressOptions options_;
  std::string address_;
  std::unique_ptr<EgressGateway> gateway_;
};

}  // namespace casemate
