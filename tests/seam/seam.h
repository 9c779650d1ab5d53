#pragma once

// One list of behaviours for every implementation of the seam that runs real programs. A test here
// knows `Sandbox` and `Call` and nothing of who provides them: what it wants to see of the inside,
// a program inside tells.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"

namespace casemate::seam {

// One sandbox of one provider, made for one test and ended with it.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Sandbox& sandbox() = 0;
};

struct Provider {
  std::string name;
  // Empty when it can work here, else why not.
  std::function<std::string()> why_not;
  std::function<std::unique_ptr<Subject>()> make;
  friend std::ostream& operator<<(std::ostream& out, const Provider& provider) {
    return out << provider.name;
  }
};

const std::vector<Provider>& providers();
std::string provider_name(const testing::TestParamInfo<Provider>& info);

ExecRequest shell(std::string line);
ExecRequest program(std::vector<std::string> words);
ExecRequest python(std::string text);

// A stop that another thread requests.
class StopFromElsewhere {
 public:
  CallControl control() const;
  void request();
  void request_and_wait();

 private:
  std::stop_source source_;
  std::jthread thread_;
};

// A test with one sandbox and one open call; skipped where the provider cannot work.
class Seam : public testing::TestWithParam<Provider> {
 protected:
  void SetUp() override;

  Sandbox& sandbox() { return subject_->sandbox(); }
  Call& call() { return *call_; }
  std::string work() const { return call_->directory() + "/work"; }

  ExecResult run(const ExecRequest& request) { return call_->exec(request, {}); }
  // What a shell line in `work/` prints; it must succeed.
  std::string guest(const std::string& line);
  // Waits, inside, until `work/<name>` is there and not empty, and returns what it holds. A test
  // failure when it does not come within about 20 s.
  std::string awaited(const std::string& name);
  // Runs what would go on for ever until its time is up, and again with four times as much where
  // that was before it had written `work/ready`: how long its beginning takes is this machine's
  // affair.
  ExecResult run_out(ExecRequest request, std::chrono::nanoseconds time);

  // Whether any process of any call holds the lock that `kHoldLock` takes: proof of life that needs
  // no process ids. The file lies beside the calls, where all of them reach it.
  bool lock_is_held();
  // Waits, inside, until no process holds it.
  void await_lock();

  std::unique_ptr<Subject> subject_;
  std::unique_ptr<Call> call_;
};

// Python: takes the lock and keeps it as long as this process or a child of it lives.
extern const char kHoldLock[];

}  // namespace casemate::seam
