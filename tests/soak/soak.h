#pragma once

// A life of a host with its sandboxes, killed wherever it may be killed, and the look at what is
// left of it.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "casemate/local/local_backend.h"
#include "casemate/sys/unique_fd.h"
#include "tests/linux/linux_test.h"
#include "tests/soak/inventory.h"
#include "tests/soak/stepped_process.h"

namespace casemate::soak {

// A keeper's end alone is no reason to refuse a sandbox, which nobody has used yet: throws
// `std::runtime_error` where it is refused.
std::shared_ptr<Sandbox> acquire_surely(local::LocalBackend& host, const SandboxKey& key,
                                        const SandboxSpec& spec);

// What a shell line prints; throws `std::runtime_error` where it does not exit with 0.
std::string print(Sandbox& sandbox, const std::string& line);

// This process is a subreaper: whatever a killed host or keeper leaves behind becomes its child, so
// "no process is left" is a fact of the kernel's, not a search by name. And it is in a network and
// a mount namespace of its own where it may make them: then no socket and no mount in them is
// another program's.
class Soak : public linux_tests::LinuxTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // What a host does with sandboxes of that spec, from the first acquire to the last dispose.
  // Throws `std::runtime_error` where anything comes out otherwise than it should.
  using Life = std::function<void(local::LocalBackend& host, const SandboxSpec& spec)>;

  // Kills the host at each step of that life, all its threads' counted, or the keeper at each of
  // its own; at a tenth of them where not all is asked for. Each time expects that nothing is left,
  // and of a host that lost its keeper that it goes on: what failed it does once more. The specs
  // take turns.
  void kill_at_any_step(Victim victim, const Life& life,
                        const std::vector<SandboxSpec>& specs = {spec(), kept_spec()});

  // Where it looks for what is left; the state directory. An override adds to it.
  virtual std::vector<std::filesystem::path> directories() const { return {state()}; }
  virtual std::unique_ptr<local::LocalBackend> make_host() const { return another_backend(); }
  // Around each life: before it, and when it is over, killed or not.
  virtual void before_life() {}
  virtual void after_life(const Stepped& /*stepped*/, const std::string& /*when*/) {}

  // Everything that there is now is nobody's leftover.
  void remember_what_is_there();
  // After the next sweep. What was meant to be kept is disposed first.
  void expect_nothing_left(const std::string& when);

  static SandboxSpec kept_spec();

 private:
  Inventory what_is_there() const;
  std::vector<std::string> groups_left();

  sys::UniqueFd watch_;
  Inventory before_;
};

}  // namespace casemate::soak
