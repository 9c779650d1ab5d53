#pragma once

// For tests: the plain guest of plain_sandbox.h, reached by one multiplexed stream alone.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/stream/multiplexed_stream.h"
#include "tests/support/stream_process.h"

namespace casemate {

class StreamedPlainSandbox {
 public:
  explicit StreamedPlainSandbox(StreamForm form = StreamForm::pipes,
                                guest::AgentTiming timing = {}) {
    std::string pattern = "/dev/shm/casemate-XXXXXX";
    root_ = mkdtemp(pattern.data());
    process_ = std::make_unique<StreamProcess>(test_programs() / "plain_guest",
                                               std::vector<std::string>{root_, "stream"}, form);
    stream_ = std::make_shared<guest::MultiplexedStream>(
        process_->take_end(), guest::MultiplexedStreamOptions{.id = "0123456789abcdef"});
    parts_.info.id = "0123456789abcdef";
    parts_.info.backend = "plain-stream";
    parts_.info.work_dir = root_ / "workspace";
    parts_.timing = timing;
    parts_.connect = [stream = stream_](const CallControl& control) {
      return stream->connect(control);
    };
  }
  StreamedPlainSandbox(const StreamedPlainSandbox&) = delete;
  StreamedPlainSandbox& operator=(const StreamedPlainSandbox&) = delete;
  ~StreamedPlainSandbox() {
    sandbox_.reset();
    stream_->close();
    process_.reset();
    std::filesystem::remove_all(root_);
  }

  // To be changed before the first use of `sandbox`.
  guest::AgentSandboxParts& parts() { return parts_; }
  // From any thread.
  Sandbox& sandbox() {
    std::call_once(made_, [this] { sandbox_ = std::make_unique<guest::AgentSandbox>(parts_); });
    return *sandbox_;
  }
  guest::MultiplexedStream& stream() { return *stream_; }
  StreamProcess& process() { return *process_; }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  std::unique_ptr<StreamProcess> process_;
  std::shared_ptr<guest::MultiplexedStream> stream_;
  guest::AgentSandboxParts parts_;
  std::once_flag made_;
  std::unique_ptr<Sandbox> sandbox_;
};

}  // namespace casemate
