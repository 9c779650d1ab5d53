#pragma once

// A provider with exec and files only, as the file transport needs one: what an exec leaves behind
// lives on. The linux backend ends it, so a small server runs inside one of its calls for as long
// as that is open, and starts each command that it is told.

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "casemate/core/sandbox.h"
#include "casemate/host_tools/over_exec_provider.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

class ResidentGuest {
 public:
  explicit ResidentGuest(Sandbox& sandbox);
  // Ends the server and all that was started.
  ~ResidentGuest();

  // The call's files, and commands with `environment` beside their own.
  ExecAndFiles access();
  Call& call() const { return *call_; }
  std::map<std::string, std::string> environment;

  ExecResult exec(const ExecRequest& request);

 private:
  std::string answer_to(const std::string& line);

  std::unique_ptr<Call> call_;
  sys::UniqueFd commands_;
  sys::UniqueFd commands_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string received_;
  bool ended_ = false;
  std::stop_source stop_;
  std::jthread server_;
};

}  // namespace casemate
