#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "casemate/guest/agent/account_place.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The calls of a sandbox whose place are accounts (account_place.h): a process, and a user id that
// no other call has, for each. For the agent, process 1 of its container: one thread, which waits
// for `fd` and then calls `reap`, and is the parent of nothing else that it wants to hear of.
//
// Throws `std::system_error`.
class AccountCalls {
 public:
  // Blocks SIGCHLD and gives what calls share its owner and modes. `config.shared_id` is chosen
  // here.
  explicit AccountCalls(AccountPlace::Config config);

  // Has a call served over the connection. What refuses that is said over it.
  void start(sys::UniqueFd connection);

  // Readable when processes have ended.
  int fd() const { return children_.get(); }
  void reap();

 private:
  struct User {
    unsigned id = 0;
    int clearings = 0;
  };

  bool clear(User user);
  bool is_taken(unsigned id) const;
  unsigned next_user();
  static void become_child(const char* name, std::optional<int> connection);
  [[noreturn]] void become_call(sys::UniqueFd connection, unsigned user);

  IdRange ids_;
  AccountPlace::Config config_;
  sys::UniqueFd children_;
  // Whose call a process is, or after whom it clears up.
  std::map<pid_t, User> users_;
  // After whom somebody has still to clear up, with how often that was tried.
  std::map<unsigned, int> uncleared_;
  // Whose files could not be removed: their ids are never used again.
  std::set<unsigned> lost_;
  std::uint32_t next_ = 0;
};

}  // namespace casemate::guest
