#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "casemate/guest/agent/exec_child.h"
#include "casemate/guest/agent/exec_children.h"
#include "casemate/guest/agent/exec_init.h"
#include "casemate/guest/agent/place.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// How an exec's program begins: the pipes to it, and the child that becomes it. Methods throw
// `std::system_error`.
class ProgramStart {
 public:
  // The exec-init's ends. A program that stays has no input, and its output goes nowhere.
  struct Streams {
    sys::UniqueFd in;
    sys::UniqueFd out;
    sys::UniqueFd err;
  };

  // `groups` are the call's, open.
  ProgramStart(Stay stay, std::span<const int> groups, ExecChildren& children, Place& place);

  // First, once: makes the pipes, and a child for a program that nobody has asked for yet where
  // there is time for it, while nothing came over `connection`.
  void start_ahead(int connection);
  // Starts the program; `text` is the encoded `request`. Returns when it runs, or why it does not.
  std::optional<Failure> start(const Exec& request, std::string_view text, int directory);
  // Once it runs, they are the caller's; not blocking.
  Streams take_streams();

 private:
  struct Pipe {
    sys::UniqueFd read;
    sys::UniqueFd write;
  };
  static Pipe make_pipe();
  void make_pipes();
  ChildDescriptors childs_ends() const;
  bool let_go_on(std::string_view text, int directory, Input input);

  const bool stays_;
  const std::span<const int> groups_;
  ExecChildren& children_;
  Place& place_;
  Pipe in_;
  sys::UniqueFd no_input_;
  Pipe out_;
  Pipe err_;
  Pipe report_;
  // Where a child waits for its program.
  sys::UniqueFd order_;
};

}  // namespace casemate::guest
