// Hosts that are killed at each request that they make of an engine.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "casemate/backends/docker/guest_volume.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/docker/engines.h"
#include "tests/docker/other_process.h"
#include "tests/support/no_throw.h"

namespace casemate::docker_tests {
namespace {

// Stands between a host and its engine, and does something at one of the host's requests.
class Between {
 public:
  enum class When { before_the_engine_hears, while_the_engine_works, after_the_engine_answered };

  Between(const std::filesystem::path& directory, std::string engine, int number, When when)
      : path_(directory / "between.sock"),
        engine_(std::move(engine)),
        number_(number),
        when_(when),
        listener_(sys::make_stream_socket()) {
    std::filesystem::remove(path_);
    sys::bind_to_path(listener_.get(), path_);
    sys::start_listening(listener_.get());
  }
  ~Between() {
    sys::raise_event(over_.get());
    thread_ = {};
  }

  std::string address() const { return path_; }
  // Once the host is there. `act` is called at most once, and returns at once.
  void watch(std::function<void()> act) {
    act_ = std::move(act);
    thread_ = std::jthread([this] { no_throw([&] { serve(); }); });
  }
  bool acted() const { return acted_; }

 private:
  void serve() {
    std::vector<std::jthread> carriers;
    while (true) {
      pollfd entries[] = {{listener_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
      poll(entries, 2, -1);
      if (entries[1].revents != 0) return;
      sys::UniqueFd near = sys::accept_connection(listener_.get());
      if (!near) continue;
      const bool last = ++count_ == number_;
      if (last && when_ == When::before_the_engine_hears) {
        act();
        continue;
      }
      carriers.emplace_back(
          [this, last, end = std::move(near)] { no_throw([&] { carry(end.get(), last); }); });
    }
  }

  void act() {
    // Before, so that whoever hears of it knows why.
    if (!acted_.exchange(true)) act_();
  }

  // Requests come in one piece: who asks has nothing more to say.
  void carry(int near, bool last) {
    const sys::UniqueFd far = sys::connect_to_address(engine_);
    bool asked = false;
    char bytes[65536];
    while (true) {
      pollfd entries[] = {{near, POLLIN, 0}, {far.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
      poll(entries, 3, -1);
      if (entries[2].revents != 0) return;
      if (entries[0].revents != 0) {
        const ssize_t count = recv(near, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count == 0) return;
        if (count > 0) send_all(far.get(), bytes, static_cast<std::size_t>(count));
        if (last && when_ == When::while_the_engine_works && count > 0) act();
        asked = asked || count > 0;
      }
      if (entries[1].revents != 0) {
        const ssize_t count = recv(far.get(), bytes, sizeof bytes, MSG_DONTWAIT);
        if (last && asked) act();
        if (count <= 0) return;
        send_all(near, bytes, static_cast<std::size_t>(count));
      }
    }
  }

  static void send_all(int to, const char* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        pollfd entry{to, POLLOUT, 0};
        poll(&entry, 1, -1);
        continue;
      }
      if (sent <= 0) return;
      bytes += sent;
      count -= static_cast<std::size_t>(sent);
    }
  }

  std::filesystem::path path_;
  std::string engine_;
  int number_;
  When when_;
  sys::UniqueFd listener_;
  sys::UniqueFd over_ = sys::make_event();
  std::atomic<bool> acted_ = false;
  std::function<void()> act_;
  int count_ = 0;
  std::jthread thread_;
};

class DockerKill : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerKill, testing::Values("docker", "podman", "runtime"),
                         [](const auto& each) { return each.param; });

// What an engine still works at when its host dies may come to be after the disposal: then it is
// the next sweep's.
void await_nothing(DockerBackend& backend, const std::function<bool()>& is_empty) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_empty() && std::chrono::steady_clock::now() < until) {
    usleep(20'000);
    backend.list();
  }
}

// LC-06: what brings the guest program to the engine, a container of its own and a volume, too.
TEST_P(DockerKill, AHostThatIsKilledAtAnyRequestLeavesNothing) {
  constexpr int kFarMoreThanThereAre = 60;
  using When = Between::When;
  std::vector<When> moments{When::after_the_engine_answered};
  // Podman takes a second for what takes Docker a tenth.
  if (GetParam() == "docker") {
    moments = {When::before_the_engine_hears, When::while_the_engine_works,
               When::after_the_engine_answered};
  }
  const std::string engine_socket = engine_under_test(GetParam()).address.substr(7);
  bool left_a_helper = false;
  bool left_a_volume = false;
  for (const When when : moments) {
    int number = 1;
    for (; number < kFarMoreThanThereAre; ++number) {
      SCOPED_TRACE(number);
      // With the requests that bring the guest program there, in every other round.
      if (number % 2 == 0) engine().remove_volume(docker::guest_volume(), {});
      Between between(state_, engine_socket, number, when);
      std::unique_ptr<DockerBackend> kept;
      OtherProcess host([&] {
        DockerBackendOptions through = options();
        through.host = between.address();
        kept = std::make_unique<DockerBackend>(std::move(through));
        const auto sandbox = kept->acquire(key(), spec(), {});
        const std::string said = sandbox->exec(shell("echo works"), {}).stdout;
        kept->dispose(key());
        return said;
      });
      between.watch([pid = host.pid()] { kill(pid, SIGKILL); });
      host.go();
      const std::string said = host.hear();
      host.end();
      EXPECT_TRUE(said == "works\n" || (said.empty() && between.acted())) << said;
      const bool brings = number % 2 == 0 && said.empty();
      for (const docker::Container& left : containers()) {
        left_a_helper |= left.name.ends_with(docker::kHelperSuffix);
      }
      const bool volume = brings && engine().volume_is_there(docker::guest_volume(), {});
      left_a_volume |= volume;
      backend().dispose_scope("scope", "thread");
      if (when == When::while_the_engine_works) {
        await_nothing(backend(), [&] { return containers().empty(); });
      }
      EXPECT_EQ(containers().size(), 0U);
      std::error_code none;
      for (const auto& left : std::filesystem::directory_iterator(state_ / "docker/places", none)) {
        ADD_FAILURE() << left.path() << " is left";
      }
      // However much of it is filled: the next makes it whole, and there is one.
      if (volume && GetParam() == "docker") {
        const auto next = backend().acquire(key(), spec(), {});
        EXPECT_EQ(next->exec(shell("echo whole"), {}).stdout, "whole\n");
        EXPECT_EQ(backend().dispose(key()), 1);
        EXPECT_EQ(engine().list_volumes(std::string(docker::kGuestLabel), {}),
                  std::vector<std::string>{docker::guest_volume()});
      }
      if (testing::Test::HasFailure()) return;
      if (!between.acted()) break;
    }
    EXPECT_LT(number, kFarMoreThanThereAre);
    EXPECT_GT(number, 5);
  }
  EXPECT_TRUE(left_a_helper) << "no kill came while there was one";
  EXPECT_TRUE(left_a_volume) << "no kill came while there was one";
}

// The requests are the same with Podman, which takes a second for each.
class DockerCancel : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerCancel, testing::Values("docker"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerCancel, AnAcquireThatIsCancelledAtAnyRequestLeavesNothing) {
  constexpr int kFarMoreThanThereAre = 60;
  const std::string engine_socket = engine_under_test(GetParam()).address.substr(7);
  int number = 1;
  for (; number < kFarMoreThanThereAre; ++number) {
    SCOPED_TRACE(number);
    if (number % 2 == 0) engine().remove_volume(docker::guest_volume(), {});
    std::stop_source stop;
    Between between(state_, engine_socket, number, Between::When::while_the_engine_works);
    between.watch([&stop] { stop.request_stop(); });
    DockerBackendOptions through = options();
    through.host = between.address();
    DockerBackend own(through);
    try {
      own.acquire(key(), spec(), {std::nullopt, stop.get_token()});
      own.dispose(key());
    } catch (const SandboxCancelled&) {
      EXPECT_TRUE(between.acted());
    }
    EXPECT_EQ(containers().size(), 0U);
    std::error_code none;
    for (const auto& left : std::filesystem::directory_iterator(state_ / "docker/places", none)) {
      ADD_FAILURE() << left.path() << " is left";
    }
    if (testing::Test::HasFailure()) return;
    if (!between.acted()) break;
  }
  EXPECT_LT(number, kFarMoreThanThereAre);
  EXPECT_GT(number, 5);
}

}  // namespace
}  // namespace casemate::docker_tests
