#include "casemate/backends/docker/docker_backend.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/backends/docker/engine.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/scratch.h"

namespace casemate {
namespace {

// An engine of two containers, which ignores every filter and starts no program in them; hears what
// is asked of it.
class CarelessEngine {
 public:
  CarelessEngine()
      : listener_(sys::make_stream_socket()), path_((scratch_ / "engine.sock").string()) {
    sys::bind_to_path(listener_.get(), path_);
    sys::start_listening(listener_.get());
    thread_ = std::jthread([this] {
      while (true) {
        pollfd entries[] = {{listener_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
        poll(entries, 2, -1);
        if (entries[1].revents != 0) return;
        sys::UniqueFd connection = sys::accept_connection(listener_.get());
        if (connection) answer(connection.get());
      }
    });
  }
  ~CarelessEngine() { sys::raise_event(over_.get()); }

  const std::string& path() const { return path_; }
  // Whole requests' first lines, once nobody asks any more.
  std::vector<std::string> removals;
  // Of its containers; to be changed while nobody asks.
  std::string state = "running";
  // How long it thinks about what it is.
  std::chrono::milliseconds pause{0};
  std::atomic<int> lists = 0;
  // How often it stumbles over a process that has ended before it knows of that, as Podman does.
  std::atomic<int> stumbles = 0;
  // How often a name is taken by what it still makes and does not show.
  std::atomic<int> hidden = 0;

 private:
  static std::string container(const std::string& id, const SandboxKey& key) {
    boost::json::object labels;
    SandboxSpec spec;
    spec.kind = "test";
    for (const auto& [name, value] : docker::labels_of(key, spec, "f")) labels[name] = value;
    return boost::json::serialize(boost::json::object{
        {"Id", id}, {"Names", {"/" + id}}, {"State", "running"}, {"Labels", std::move(labels)}});
  }

  void answer(int connection) {
    sys::make_blocking(connection, std::chrono::seconds(20));
    std::string request;
    char letter = 0;
    while (!request.ends_with("\r\n\r\n") && read(connection, &letter, 1) == 1) request += letter;
    std::string status = "200 OK";
    std::string body = "{}";
    if (request.starts_with("GET /version ")) {
      poll(nullptr, 0, static_cast<int>(pause.count()));
      body = R"({"ApiVersion":"1.41","MinAPIVersion":"1.12","Version":"1"})";
    } else if (stumbles > 0 && request.find("/containers/") != request.npos) {
      --stumbles;
      status = "500 Internal Server Error";
      body = R"({"message":"read /proc/7/cgroup: no such process"})";
    } else if (request.find("/containers/create") != request.npos) {
      status = hidden > 0 ? "409 Conflict" : "201 Created";
      body = R"({"Id":"made"})";
      hidden = std::max(0, hidden - 1);
    } else if (request.find("/hidden/json") != request.npos) {
      status = "404 Not Found";
    } else if (request.find("/containers/json") != request.npos) {
      ++lists;
      body = "[" + container("ours", {"scope", "thread", "agent"}) + "," +
             container("theirs", {"scope", "another", "agent"}) + "]";
    } else if (request.find("/exec ") != request.npos) {
      status = "500 Internal Server Error";
      body = R"({"message":"no room for a program"})";
    } else if (request.find("/ours/json") != request.npos) {
      body = R"({"Id":"ours","State":{"Status":")" + state + R"("}})";
    } else if (request.starts_with("DELETE ")) {
      removals.push_back(request.substr(0, request.find('?')));
    }
    const std::string reply = "HTTP/1.1 " + status +
                              "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                              body;
    static_cast<void>(send(connection, reply.data(), reply.size(), MSG_NOSIGNAL));
  }

  Scratch scratch_;
  sys::UniqueFd listener_;
  sys::UniqueFd over_ = sys::make_event();
  std::string path_;
  std::jthread thread_;
};

TEST(DockerBackend, WhatAnEngineListsBesideWhatWasAskedForIsNotEnded) {
  const Scratch scratch;
  CarelessEngine engine;
  DockerBackendOptions options;
  options.host = engine.path();
  options.state_dir = (scratch / "state").string();
  DockerBackend backend(options);
  EXPECT_EQ(backend.dispose_scope("scope", "thread"), 1);
  ASSERT_EQ(engine.removals.size(), 1U);
  EXPECT_EQ(engine.removals[0], "DELETE /v1.41/containers/ours");
}

// What was left would stay, and what lives be hidden from who ends everything.
TEST(DockerBackend, ABusyEngineIsWaitedForByWhoLists) {
  const Scratch scratch;
  CarelessEngine engine;
  engine.pause = std::chrono::milliseconds(2'500);
  DockerBackendOptions options;
  options.host = engine.path();
  options.state_dir = (scratch / "state").string();
  DockerBackend(options).list();
  EXPECT_GT(engine.lists, 0);
}

// Of which one cannot be looked at.
TEST(DockerBackend, WhatIsLeftIsSweptWithinTheCallersBounds) {
  const Scratch scratch;
  CarelessEngine engine;
  engine.stumbles = 1'000'000;
  DockerBackendOptions options;
  options.host = engine.path();
  options.state_dir = (scratch / "state").string();
  options.image = "image";
  DockerBackend backend(options);
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  SandboxSpec spec;
  spec.kind = "test";
  EXPECT_THROW(backend.acquire({"scope", "thread", "agent"}, spec, control), SandboxTimeout);
  // In the 5 s that are otherwise waited it would be asked some 30 times.
  EXPECT_LT(1'000'000 - engine.stumbles, 15);
  engine.stumbles = 0;
}

// Podman says 500 of one that has ended, and so does Docker in its last moment.
TEST(DockerEngine, AProgramThatIsNotStartedIsRefusedWhereTheContainerRunsAndElseThereIsNone) {
  CarelessEngine careless;
  docker::Engine engine(docker::parse_engine_address(careless.path()), nullptr, Log{});
  try {
    engine.exec("ours", {"/bin/true"}, {});
    ADD_FAILURE() << "it said no";
  } catch (const docker::EngineRefused& refused) {
    EXPECT_EQ(refused.status(), 500U);
    EXPECT_STREQ(refused.what(), "no room for a program");
  }
  careless.state = "exited";
  EXPECT_FALSE(engine.exec("ours", {"/bin/true"}, {}));
}

// The host that asked for it may have been killed since.
TEST(DockerEngine, ANameOfWhatTheEngineStillMakesIsWaitedFor) {
  CarelessEngine careless;
  docker::Engine engine(docker::parse_engine_address(careless.path()), nullptr, Log{});
  careless.hidden = 10;
  EXPECT_EQ(engine.create("hidden", "{}", {}), "made");
  // What can be seen is the caller's to end.
  careless.hidden = 10;
  EXPECT_FALSE(engine.create("ours", "{}", {}));
  EXPECT_EQ(careless.hidden, 9);
}

TEST(DockerEngine, OneThatEndsInThisMomentIsAskedForUntilItsEndIsKnown) {
  CarelessEngine careless;
  careless.state = "exited";
  docker::Engine engine(docker::parse_engine_address(careless.path()), nullptr, Log{});
  engine.facts({});
  careless.stumbles = 2;
  const auto found = engine.inspect("ours", {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state, "exited");
  careless.stumbles = 2;
  EXPECT_EQ(engine.list({}, {}).size(), 2U);
  careless.stumbles = 2;
  EXPECT_TRUE(engine.remove("ours", {}));
  EXPECT_EQ(careless.removals.size(), 1U);
  // Who waits no longer is not held.
  careless.stumbles = 1'000;
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  EXPECT_THROW(engine.inspect("ours", control), SandboxTimeout);
  careless.stumbles = 0;
}

}  // namespace
}  // namespace casemate
