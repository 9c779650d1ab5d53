#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/guest/agent_call.h"
#include "casemate/local/held_sandboxes.h"
#include "casemate/local/local_options.h"
#include "casemate/sys/owner_process.h"

namespace casemate::local {

// What a `WarmPool` asks for, kept up by one thread. Thread-safe. In a forked child of the host the
// destructor does nothing.
class WarmStock {
 public:
  // A sandbox that was published under `digest`, which is of nobody's key.
  struct Ready {
    std::string digest;
    std::shared_ptr<HeldSandbox> sandbox;
  };
  // Called on the thread. What they throw is logged, and tried again at the next wish, and so is
  // that what they make does not stay; a stop ends what takes long.
  struct Makers {
    // Finds out what the pool's sandboxes are made of; first, at each wish.
    std::function<void(const std::stop_token&)> prepare;
    std::function<Ready(const std::stop_token&)> sandbox;
    std::function<std::unique_ptr<guest::AgentCall>(const std::shared_ptr<const HeldSandbox>&)>
        program;
  };

  WarmStock(WarmPool pool, Makers makers, Log log);
  ~WarmStock();
  WarmStock(const WarmStock&) = delete;
  WarmStock& operator=(const WarmStock&) = delete;

  // Begins, if nobody did yet.
  void begin();
  // A ready sandbox that lives and has that fingerprint, or an empty one. It and its programs are
  // the caller's from now on. Others that were made of an image that has changed since are let go.
  Ready take_sandbox(std::string_view fingerprint);
  // Keeps programs in that sandbox too, until it is forgotten or found dead.
  void tend(const std::shared_ptr<const HeldSandbox>& sandbox);
  // An open call with the program held in it, now in use; null when there is none that lives.
  std::unique_ptr<Call> take_program(std::string_view id, const ExpectedProgram& program,
                                     const CallControl& control);
  // Waits until there is all that shall be, at most until the deadline of `control`. False when it
  // came first, a stop, or a failure to make something.
  bool wait_until_full(const CallControl& control);
  // Ends the calls of a sandbox that is about to end.
  void forget(std::string_view id);

 private:
  using Calls = std::vector<std::unique_ptr<guest::AgentCall>>;
  struct Tended {
    std::shared_ptr<const HeldSandbox> sandbox;
    Calls calls;
  };

  enum class Haste : bool { no, yes };
  void wish(Haste haste);
  void work(const std::stop_token& stop);
  bool make_sandbox(const std::stop_token& stop);
  bool make_program();
  bool may_go_on(std::size_t made);
  Calls drop_spoilt();

  const WarmPool pool_;
  const Makers makers_;
  const Log log_;
  sys::OwnerProcess owner_;

  std::mutex mutex_;
  std::condition_variable_any wished_;
  bool wish_ = false;
  // Somebody waits, or there is nothing left to take.
  bool hurry_ = false;
  // No wish is open, and what came of the last one.
  std::condition_variable_any rested_;
  bool resting_ = false;
  bool failed_ = false;
  std::vector<Ready> ready_;
  std::map<std::string, Tended, std::less<>> tended_;
  // Of the interpreter's file when the first of the calls was made.
  std::string mark_;
  // Started with the first wish, and joined before the rest goes.
  std::unique_ptr<std::jthread> thread_;
};

}  // namespace casemate::local
