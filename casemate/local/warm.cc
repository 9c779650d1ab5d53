// A local backend's part of its warm pool: what `WarmStock` keeps, made and handed over.

#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/lease.h"
#include "casemate/local/local_sandboxes.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"

namespace casemate::local {

namespace {

// A key of nobody's, until somebody's takes its place.
constexpr char kPoolScope[] = "casemate pool";
// For what is off everybody's path: a machine on which it takes longer has other worries.
constexpr std::chrono::seconds kPatience{30};

}  // namespace

// Whether that is what the pool is for, as far as it is known: an image that is still on its way
// here holds nobody up.
bool LocalSandboxes::is_pooled(const std::string& fingerprint) {
  if (!stock_) return false;
  stock_->begin();
  const std::lock_guard lock(pool_mutex_);
  return pool_fingerprint_ == fingerprint;
}

// On the pool's thread where the image may have to be imported.
void LocalSandboxes::find_pool_fingerprint(const std::stop_token& stop) {
  {
    const std::lock_guard lock(pool_mutex_);
    if (!pool_fingerprint_.empty()) return;
  }
  CallControl control;
  control.stop = stop;
  std::string found =
      choose_image(options_.warm_pool->spec, images_, engine_->build(), control).fingerprint;
  const std::lock_guard lock(pool_mutex_);
  pool_fingerprint_ = std::move(found);
}

WarmStock::Ready LocalSandboxes::make_ready(const std::stop_token& stop) {
  CallControl control;
  control.stop = stop;
  SandboxSpec spec = options_.warm_pool->spec;
  // It ends with this process.
  spec.keep_idle = {};
  spec.labels.clear();
  const SandboxKey key{kPoolScope, random_hex(8), "default"};
  std::string digest = sandbox_name(key, spec.kind);
  // As long as it takes: an import is the one thing here that is not over in an instant.
  const ImageChoice image = choose_image(spec, images_, engine_->build(), control);
  {
    const std::lock_guard lock(pool_mutex_);
    pool_fingerprint_ = image.fingerprint;
  }
  control.deadline = std::chrono::steady_clock::now() + kPatience;
  auto sandbox = std::make_shared<HeldSandbox>(create(key, spec, image, digest, control));
  return {.digest = std::move(digest), .sandbox = std::move(sandbox)};
}

// Under the key's lock. Null when there is none, or none any more.
std::shared_ptr<const HeldSandbox> LocalSandboxes::adopt_ready(const SandboxKey& key,
                                                               const SandboxSpec& spec,
                                                               const std::string& fingerprint,
                                                               const std::string& digest) {
  const std::shared_ptr<const StateDirectory> found = state();
  const auto [place, ready] = stock_->take_sandbox(fingerprint);
  if (!ready) return nullptr;
  // Nobody else looks at these members: what the pool has held in it needs the others only.
  ready->record.key = key;
  ready->record.labels = spec.labels;
  write_record(ready->directory.get(), ready->record);
  try {
    sys::rename_directory(found->sandboxes(), place, found->sandboxes(), digest);
  } catch (const std::system_error&) {
    // Somebody disposed it in this moment.
    stock_->forget(ready->record.id);
    return nullptr;
  }
  if (ready->keep_idle.change(spec.keep_idle)) {
    change_keep_idle(ready->lease.get(), spec.keep_idle);
  }
  return ready;
}

std::unique_ptr<guest::AgentCall> LocalSandboxes::hold_program(
    const std::shared_ptr<const HeldSandbox>& held) {
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + kPatience;
  auto call = open_own_call(held, WayOut::as_recorded, control);
  call->hold(*options_.warm_pool->program, options_.warm_pool->imports, control);
  return call;
}

}  // namespace casemate::local
