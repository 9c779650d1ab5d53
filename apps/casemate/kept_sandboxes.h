#pragma once

// Looking for sandboxes in several backends, of which one that cannot be asked keeps nobody from
// the others'.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/casemate/refusal.h"
#include "casemate/core/backend.h"

namespace casemate::app {

// The backends whose sandboxes could not be looked at, and why.
class NotLookedAt {
 public:
  void add(std::string backend, const SandboxError& why);
  bool empty() const { return failures_.empty(); }
  // One refusal that names all of them, with the code and hint of the first, `what` before it.
  // Not to be called when empty.
  Reworded refusal(std::string_view what = "") const;
  // That, on standard error, and its exit status; 0 when empty.
  int report() const;

 private:
  std::vector<std::pair<std::string, Reworded>> failures_;
};

// What the backend lists; nothing where it cannot, which is added to `missed` then.
std::vector<SandboxRecord> list_of(SandboxBackend& backend, NotLookedAt& missed);

// The sandbox that a run with --keep left there under that key; null where there is none, and where
// the backend cannot tell, which is added to `missed` then. Throws `SandboxCancelled`, and why
// one that is there cannot be had.
std::shared_ptr<Sandbox> kept_in(SandboxBackend& backend, const SandboxKey& key,
                                 const CallControl& control, NotLookedAt& missed);

}  // namespace casemate::app
