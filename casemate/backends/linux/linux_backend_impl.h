#pragma once

// The linux backend's one object, by subject: acquire.cc (get-or-create and handles), create.cc
// (making one), dispose.cc (ending and sweeping), linux_backend.cc (administration and the front).

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/backends/linux/call_accounting.h"
#include "casemate/backends/linux/control_groups.h"
#include "casemate/backends/linux/group_detection.h"
#include "casemate/backends/linux/held_sandboxes.h"
#include "casemate/backends/linux/image_choice.h"
#include "casemate/backends/linux/keeper_client.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/linux/state_directory.h"
#include "casemate/backends/linux/warm_stock.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/images/store.h"

namespace casemate {

class LinuxBackend::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(LinuxBackendOptions options);

  BackendDeclarations declarations() const;
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control);
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control);
  std::vector<SandboxRecord> list();
  // Ends every sandbox whose record is wanted. Returns how many lived.
  int dispose_where(const std::function<bool(const linux_backend::Record&)>& wanted) noexcept;
  bool wait_until_warm(const CallControl& control) {
    return stock_ && stock_->wait_until_full(control);
  }
  const Log& log() const { return options_.log; }
  // Whose ids the sandboxes made last have, for a person.
  std::string identity() { return keeper_.identity(); }

 private:
  // As it is now: made anew where it was removed under this process.
  std::shared_ptr<const linux_backend::StateDirectory> state();
  linux_backend::HeldSandbox create(const SandboxKey& key, const SandboxSpec& spec,
                                    const linux_backend::ImageChoice& image,
                                    const std::string& digest, const CallControl& control);
  std::uint64_t ask_keeper(const linux_backend::Record& record, const SandboxSpec& spec,
                           const linux_backend::ImageChoice& image, std::vector<int> descriptors,
                           const CallControl& control);
  std::shared_ptr<Sandbox> hold(const std::string& digest, linux_backend::HeldSandbox sandbox,
                                bool reused);
  std::shared_ptr<const linux_backend::HeldSandbox> adopt_ready(const SandboxKey& key,
                                                                const SandboxSpec& spec,
                                                                const std::string& fingerprint,
                                                                const std::string& digest);
  bool is_pooled(const std::string& fingerprint);
  void find_pool_fingerprint(const std::stop_token& stop);
  linux_backend::WarmStock::Ready make_ready(const std::stop_token& stop);
  std::unique_ptr<guest::AgentCall> hold_program(
      const std::shared_ptr<const linux_backend::HeldSandbox>& held);
  guest::AgentSandboxParts parts_of(const std::shared_ptr<const linux_backend::HeldSandbox>& held,
                                    bool reused, linux_backend::LinuxCallAccounting::Use use) const;
  std::shared_ptr<Sandbox> hand_out(const std::shared_ptr<const linux_backend::HeldSandbox>& held,
                                    bool reused);
  bool end_wanted(const std::string& digest,
                  const std::function<bool(const linux_backend::Record&)>& wanted);
  // Where its control groups are; by a record that does not say it, where they would be now.
  const linux_backend::ControlGroupLayout& groups_of(const linux_backend::Record& record) const;
  bool discard(const std::string& digest, const std::string& id);
  bool end(int parent, const std::string& name);
  void sweep(bool everything) noexcept;
  void sweep_new();
  void sweep_sandboxes();

  LinuxBackendOptions options_;
  const linux_backend::DetectedGroups groups_;
  images::ImageStore images_;
  linux_backend::KeeperClient keeper_;
  linux_backend::HeldSandboxes held_;
  std::mutex mutex_;
  std::shared_ptr<const linux_backend::StateDirectory> state_;
  bool swept_ = false;
  std::mutex pool_mutex_;
  // Empty until the pool's thread has brought its image here.
  std::string pool_fingerprint_;
  // Last, so that its thread ends before what it works with.
  std::unique_ptr<linux_backend::WarmStock> stock_;
};

}  // namespace casemate
