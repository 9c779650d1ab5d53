#include "casemate/tool/guest_call.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "casemate/base/utf8.h"

namespace casemate {

GuestCall::GuestCall(const SandboxRouter& router, std::shared_ptr<Sandbox> sandbox,
                     std::unique_ptr<Call> call, const SandboxKey& key, Owner owner)
    : router_(router),
      sandbox_(std::move(sandbox)),
      call_(std::move(call)),
      key_(key),
      // Now, because the handle may serve another sandbox or none when the call closes.
      sandbox_id_(sandbox_->info().id),
      owner_(std::move(owner)) {}

GuestCall::GuestCall(GuestCall&& other) noexcept = default;

GuestCall::~GuestCall() { close(); }

GuestCall GuestCall::open(const SandboxRouter& router, const SandboxKey& key,
                          const SandboxSpec& spec, const CallControl& control, Owner owner) {
  return open_on(router, router.acquire(key, spec, control), key, control, std::move(owner));
}

GuestCall GuestCall::open_on(const SandboxRouter& router, std::shared_ptr<Sandbox> sandbox,
                             const SandboxKey& key, const CallControl& control, Owner owner,
                             const CallProfile& profile) {
  auto call = sandbox->open_call(profile, control);
  return {router, std::move(sandbox), std::move(call), key, std::move(owner)};
}

std::optional<bool> GuestCall::end() noexcept {
  // `call_` is null in a moved-from value: what it held is somebody else's to close. So is, in a
  // forked child, what the parent opened.
  if (closed_ || call_ == nullptr || !owner_process_.is_current()) return std::nullopt;
  closed_ = true;
  known_ = call_->close();
  if (known_) return std::nullopt;
  return router_.dispose_id(sandbox_id_);
}

bool GuestCall::close() noexcept {
  if (const auto lived = end()) report(*lived);
  return known_;
}

bool GuestCall::close_with_sandbox() noexcept {
  if (closed_ || call_ == nullptr || !owner_process_.is_current()) return false;
  if (!router_.dispose_id(sandbox_id_)) {
    close();
    return false;
  }
  closed_ = true;
  call_->end_with_sandbox();
  return true;
}

void GuestCall::abandon() noexcept { end(); }

void GuestCall::report(bool lived) noexcept {
  try {
    const std::string reason =
        fmt::format("the end of everything in the call could not be shown; its sandbox {} {}",
                    escape_for_display(sandbox_id_),
                    lived ? "was disposed" : "was gone already, or could not be ended");
    write_log(owner_.log, LogLevel::error,
              fmt::format("{}: {}: {}", escape_for_display(owner_.tool),
                          escape_for_display(call_->directory()), reason));
    if (owner_.on_reclaim_failure) {
      owner_.on_reclaim_failure({owner_.tool, key_, call_->directory(), reason});
    }
  } catch (const std::exception& failure) {
    write_log(
        owner_.log, LogLevel::error,
        std::string("a callback for calls that could not be reclaimed failed: ") + failure.what());
  } catch (...) {
    write_log(owner_.log, LogLevel::error,
              "a callback for calls that could not be reclaimed failed");
  }
}

}  // namespace casemate
