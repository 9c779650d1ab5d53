#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/keeper_connection.h"

namespace casemate::local {

// A sandbox, as it is named to the keeper that made it: nobody else could end it. As long as this
// lives the keeper believes in its host.
struct KeptBy {
  std::shared_ptr<KeeperConnection> keeper;
  std::uint64_t number = 0;
};

// A sandbox was lost while it was made: its keeper, or what was to become it, was ended by
// somebody. No program has run in it. Whoever tries again has to begin with another id in another
// directory: what was begun for this one may be there for a while.
class LostInTheMaking : public SandboxUnavailable {
 public:
  using SandboxUnavailable::SandboxUnavailable;
};

// The host's end of its keeper: started at the first need, started anew when it died, never a
// child of this process. Thread-safe.
class KeeperClient {
 public:
  // Gives the role of the guest program and what follows on its command line, whenever a keeper is
  // needed; where that is another than last time, another keeper is started, and the former goes on
  // for what it has made. Cheap; may throw `SandboxUnavailable`.
  using Arguments = std::function<std::vector<std::string>()>;
  // Whether a sandbox is asked for while another is in the making. Where not, one that hangs holds
  // up every other.
  enum class Starts : bool { one_at_a_time, side_by_side };
  // `silence`: for so long a keeper that says nothing to anybody is believed in; longer than it may
  // take over one sandbox.
  KeeperClient(Arguments arguments, Starts starts, std::chrono::nanoseconds silence)
      : arguments_(std::move(arguments)), starts_(starts), silence_(silence) {}
  ~KeeperClient();
  KeeperClient(const KeeperClient&) = delete;
  KeeperClient& operator=(const KeeperClient&) = delete;

  // Starts the keeper if there is none, and does not wait for it: it gets ready beside what the
  // caller does meanwhile. Throws `SandboxUnavailable`.
  void start_ahead();

  // Has one sandbox made and waits until its agent listens; `request.number` is set here. Throws
  // `SandboxUnavailable` naming what the keeper or the agent could not do, `LostInTheMaking` when
  // the keeper or what was to become the sandbox ended meanwhile, `SandboxTimeout`,
  // `SandboxCancelled`; it is given up then. `meanwhile` is called once, on this thread, while
  // it is being made, and does not throw.
  KeptBy create(guest::CreateSandbox request, std::span<const int> descriptors,
                const CallControl& control, const std::function<void()>& meanwhile = {});

  // Whose user ids the keeper's sandboxes have, for a person; empty before the first was made.
  std::string identity();

  // Ends that sandbox and waits, a bounded time that `control` of its creation does not shorten,
  // until nothing of it exists: a few milliseconds. False where that is not known: its keeper is
  // silent or gone, or this is a forked child.
  bool give_up(const KeptBy& sandbox) noexcept;

 private:
  void create_once(const guest::CreateSandbox& request, std::span<const int> descriptors,
                   KeeperConnection& keeper, const CallControl& control,
                   const std::function<void()>& meanwhile);
  void start_if_needed();
  void forget(const std::shared_ptr<KeeperConnection>& keeper);
  void reap_launcher();

  const Arguments arguments_;
  const Starts starts_;
  const std::chrono::nanoseconds silence_;
  std::timed_mutex making_;
  std::mutex mutex_;
  // As the keeper was started with.
  std::vector<std::string> started_with_;
  // Kept by everybody who waits for an answer of it, too.
  std::shared_ptr<KeeperConnection> keeper_;
  // The process that the connection belongs to: a forked child of the application has a keeper of
  // its own, or two processes would read each other's answers.
  pid_t owner_ = -1;
  // Never starts anew.
  std::uint64_t last_number_ = 0;
  // The child that the keeper was started by. It ends at once; waited for when that costs nothing.
  pid_t launcher_ = -1;
  std::string identity_;
};

}  // namespace casemate::local
