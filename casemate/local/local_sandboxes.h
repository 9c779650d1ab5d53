#pragma once

// A local backend's one object, by subject: acquire.cc (get-or-create and handles), create.cc
// (making one), dispose.cc (ending and sweeping), warm.cc (its pool), snapshots.cc (what is kept of
// one for others), local_backend.cc (administration and the front).

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/backend.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/images/store.h"
#include "casemate/local/call_accounting.h"
#include "casemate/local/control_groups.h"
#include "casemate/local/engine.h"
#include "casemate/local/group_detection.h"
#include "casemate/local/held_sandboxes.h"
#include "casemate/local/image_choice.h"
#include "casemate/local/keeper_client.h"
#include "casemate/local/local_options.h"
#include "casemate/local/snapshot_store.h"
#include "casemate/local/state_directory.h"
#include "casemate/local/warm_stock.h"

namespace casemate::local {

class LocalSandboxes : public std::enable_shared_from_this<LocalSandboxes> {
 public:
  LocalSandboxes(std::shared_ptr<Engine> engine, LocalOptions options);

  BackendDeclarations declarations() const;
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control);
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control);
  std::vector<SandboxRecord> list();
  // Ends every sandbox whose record is wanted. Returns how many lived. Records cost more than
  // names: of those that cannot be meant by what they are called none is read.
  int dispose_where(const std::function<bool(const Record&)>& wanted,
                    const std::function<bool(std::string_view name)>& may_be = {}) noexcept;
  int dispose_of(std::string_view scope, std::string_view thread_id,
                 const std::function<bool(const Record&)>& wanted) noexcept;
  bool dispose_id(std::string_view id) noexcept;
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl& control);
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view snapshot_id, const CallControl& control);
  bool dispose_snapshot(std::string_view id) noexcept;
  // Those of the sandboxes whose record is wanted.
  void dispose_snapshots_where(const std::function<bool(const Record&)>& wanted) noexcept;
  bool wait_until_warm(const CallControl& control) {
    return stock_ && stock_->wait_until_full(control);
  }
  const Engine& engine() const { return *engine_; }
  // Whose ids the sandboxes made last have, for a person.
  std::string identity() { return keeper_.identity(); }

 private:
  // As it is now: made anew where it was removed under this process.
  std::shared_ptr<const StateDirectory> state();
  // Whether anything can be found: nothing was ever made where there is no such directory, and to
  // look is no reason to make it. Only where it is surely not there.
  bool has_state() const noexcept;
  // `publish` gives it its place, where nobody has it by default, and may do something with it
  // first, or refuse it by throwing.
  HeldSandbox create(const SandboxKey& key, const SandboxSpec& spec, const ImageChoice& image,
                     const std::string& digest, const CallControl& control,
                     const std::function<void(const HeldSandbox&)>& publish = {});
  HeldSandbox create_once(const SandboxKey& key, const SandboxSpec& spec, const ImageChoice& image,
                          const CallControl& control,
                          const std::function<void(const HeldSandbox&)>& publish);
  void publish(const HeldSandbox& made, const std::string& digest);
  KeptBy ask_keeper(const Record& record, const SandboxSpec& spec, const ImageChoice& image,
                    std::vector<int> descriptors, const CallControl& control,
                    const std::function<void()>& meanwhile);
  std::shared_ptr<Sandbox> hold(const std::string& digest, HeldSandbox sandbox, bool reused);
  std::shared_ptr<const HeldSandbox> adopt_ready(const SandboxKey& key, const SandboxSpec& spec,
                                                 const std::string& fingerprint,
                                                 const std::string& digest);
  bool is_pooled(const std::string& fingerprint);
  void find_pool_fingerprint(const std::stop_token& stop);
  WarmStock::Ready make_ready(const std::stop_token& stop);
  // Under the key's lock: the one that lives, by this process's lease or one for the moment; null
  // when there is none.
  std::shared_ptr<const HeldSandbox> find_living(const std::string& digest,
                                                 const CallControl& control);
  // A snapshot that is being taken of a sandbox which nobody may use meanwhile.
  struct Taking {
    std::shared_ptr<const StateDirectory> state;
    std::shared_ptr<const HeldSandbox> held;
    FileLock idle;
    std::unique_ptr<NewSnapshot> file;
  };
  Taking begin_taking(const std::string& digest, std::string_view kind, const CallControl& control);
  enum class WayOut : std::uint8_t { none, as_recorded };
  std::unique_ptr<guest::AgentCall> open_own_call(const std::shared_ptr<const HeldSandbox>& held,
                                                  WayOut way_out, const CallControl& control);
  void fill(const HeldSandbox& made, KeptSnapshot& snapshot, const CallControl& control);
  std::unique_ptr<guest::AgentCall> hold_program(const std::shared_ptr<const HeldSandbox>& held);
  guest::AgentSandboxParts parts_of(const std::shared_ptr<const HeldSandbox>& held,
                                    bool reused) const;
  std::shared_ptr<Sandbox> hand_out(const std::shared_ptr<const HeldSandbox>& held, bool reused);
  bool end_wanted(const std::string& digest, const std::function<bool(const Record&)>& wanted);
  const DetectedGroups& groups() const;
  // Where its control groups are; by a record that does not say it, where they would be now.
  const ControlGroupLayout& groups_of(const Record& record) const;
  bool discard(const std::string& digest, const std::string& id);
  bool discard_from(int parent, const std::string& name, const std::string& digest,
                    const std::string& id);
  void replace(const HeldSandbox& made, const std::string& digest, const CallControl& control,
               const KeptSnapshot& snapshot, std::optional<FileLock>& lock);
  bool end(int parent, const std::string& name);
  void sweep(bool everything) noexcept;
  void attempt(const std::function<void()>& act) noexcept;
  void sweep_new();
  void sweep_sandboxes();
  void sweep_rest();

  // For people: "linux: ".
  void log(LogLevel level, std::string_view text) const;

  const std::shared_ptr<Engine> engine_;
  const std::string name_;
  LocalOptions options_;
  mutable std::once_flag groups_known_;
  mutable DetectedGroups groups_;
  images::ImageStore images_;
  KeeperClient keeper_;
  // Some of a sandbox's control groups could not be made. Since then all are made before the keeper
  // is asked: what it is asked for depends on what failed.
  std::atomic<bool> groups_are_refused_ = false;
  HeldSandboxes held_;
  const std::shared_ptr<guest::ReadyCalls> ready_calls_ = std::make_shared<guest::ReadyCalls>();
  TakenSnapshots taken_;
  std::mutex mutex_;
  std::shared_ptr<const StateDirectory> state_;
  unsigned sweeps_ = 0;
  std::mutex pool_mutex_;
  // Empty until the pool's thread has brought its image here.
  std::string pool_fingerprint_;
  // Last, so that its thread ends before what it works with.
  std::unique_ptr<WarmStock> stock_;
};

}  // namespace casemate::local
