#pragma once

#include <string>

#include "casemate/guest/agent/place.h"

namespace casemate::guest {

// A place that adds no boundary: plain directories below a root, plain processes of this user. It
// confines nothing, so a model's code may run in it only within a boundary that somebody else drew:
// what casemate-place-guest is for (docs/writing-a-backend.md). In tests it carries the whole guest
// library and `AgentSandbox`, under sanitizers and without privileges.
//
// What stands in for a pid namespace: call process and exec-init are child subreapers, so all that
// a program starts stays below them, and "kill everything" finds it by the parents in /proc.
class PlainPlace : public Place {
 public:
  // `root` is an existing absolute directory without links in its path; calls get theirs under
  // `<root>/workspace`, which is made when missing.
  explicit PlainPlace(const std::string& root);

  const std::string& work_dir() const override { return work_dir_; }
  void open_call_scope(std::string_view id, HostSockets sockets) override;
  std::string socket_directory(std::string_view id) const override;
  bool close_call_scope(std::string_view id) noexcept override;
  pid_t clone_exec_init() override;
  bool end_leftovers() noexcept override;
  void enter_exec_scope() override;
  void kill_exec_scope() noexcept override;
  DiskFull disk_full() const noexcept override { return DiskFull::no; }
  int become_user() noexcept override { return 0; }
  int confine_program() noexcept override;

 private:
  std::string work_dir_;
};

}  // namespace casemate::guest
