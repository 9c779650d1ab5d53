#include "casemate/images/answering.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>

#include "casemate/core/errors.h"
#include "casemate/images/store.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

// A directory on which a file system is mounted that nobody serves, as one does that hangs; seen by
// the thread that makes it, and those that it starts.
class Silence {
 public:
  Silence() {
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
      return;
    }
    server_.reset(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!server_) return;
    const std::string options =
        fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", server_.get());
    mounted_ = mount("silence", scratch_.path().c_str(), "fuse", MS_NOSUID | MS_NODEV,
                     options.c_str()) == 0;
  }
  // Whoever waits is answered then: it failed.
  ~Silence() {
    server_.reset();
    if (mounted_) umount2(scratch_.path().c_str(), MNT_DETACH);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  bool is_mounted() const { return mounted_; }
  std::string path() const { return scratch_.path().native(); }

 private:
  Scratch scratch_;
  sys::UniqueFd server_;
  bool mounted_ = false;
};

class OnSilence : public testing::Test {
 protected:
  template <typename Body>
  void within_silence(Body body) {
    bool mounted = false;
    std::thread thread([&] {
      const Silence silence;
      mounted = silence.is_mounted();
      if (mounted) body(silence.path());
    });
    thread.join();
    if (!mounted) GTEST_SKIP() << "needs root, a mount namespace and /dev/fuse";
  }
};

TEST_F(OnSilence, AStopRequestAndADeadlineEndTheWaitOfEveryForm) {
  within_silence([](const std::string& path) {
    const Scratch scratch;
    ImageStoreOptions options;
    options.directory = (scratch / "store").native();
    ImageStore store(options);
    for (const std::string& text : {"dir:" + path, "dir:" + path + "/root", "oci:" + path,
                                    "docker-archive:" + path + "/image.tar"}) {
      const ImageReference reference = parse_image_reference(text);
      CallControl late;
      late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      expect_refusal<SandboxTimeout>([&] { store.hold(reference, late); },
                                     {path, "can be reached"});
      expect_refusal<SandboxTimeout>([&] { store.check(reference, late); }, path);
      std::stop_source source;
      source.request_stop();
      expect_refusal<SandboxCancelled>(
          [&] { store.hold(reference, {.deadline = {}, .stop = source.get_token()}); }, path);
    }
    EXPECT_FALSE(std::filesystem::exists(scratch / "store"));
  });
}

TEST_F(OnSilence, OthersAreServedMeanwhile) {
  within_silence([](const std::string& path) {
    const Scratch scratch;
    ImageStoreOptions options;
    options.directory = (scratch / "store").native();
    ImageStore store(options);
    std::stop_source source;
    std::thread waits([&] {
      EXPECT_THROW(store.hold(parse_image_reference("dir:" + path + "/root"),
                              {.deadline = {}, .stop = source.get_token()}),
                   SandboxCancelled);
    });
    EXPECT_NO_THROW(store.hold(parse_image_reference("dir:/usr"), {}));
    EXPECT_TRUE(store.list().empty());
    source.request_stop();
    waits.join();
  });
}

TEST(Answer, OfWhatIsThereOrNotComesAtOnce) {
  std::stop_source source;
  for (const char* path : {"/usr", "/no/such", "/dev/zero", "/proc/self/cmdline"}) {
    EXPECT_NO_THROW(wait_for_answer(path, {.deadline = {}, .stop = source.get_token()})) << path;
  }
}

}  // namespace
}  // namespace casemate::images
