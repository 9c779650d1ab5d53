#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/casemate/host_tool_setting.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/option_parser.h"
#include "casemate/core/host_pattern.h"
#include "casemate/core/limits.h"
#include "casemate/core/spec.h"
#include "casemate/core/vocabulary.h"
#include "casemate/egress/gateway.h"

namespace casemate::app {

// What `casemate run` was asked for, every value checked for itself. Whether it can be served is
// the router's to say.
struct RunOptions {
  // Host path, or "-" for standard input.
  std::string program;
  std::vector<std::string> arguments;
  // NAME and host path, as given.
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> outputs;
  std::optional<std::string> out_dir;
  std::chrono::nanoseconds timeout{};
  Resources resources;
  TransferLimits files_in;
  TransferLimits files_out;
  CapabilitySet denied_capabilities;
  std::set<Identity> denied_identities;
  std::map<std::string, std::string> labels;
  std::string image;
  std::map<std::string, std::string> environment;
  std::optional<std::string> backend;
  HostToolSettings host_tools;
  std::vector<HostPattern> egress_allow;
  ServerNameCheck server_names = ServerNameCheck::yes;
  SandboxKey key;
  // The thread of the key was made up for this run, so that nobody else can be using it.
  bool own_key = false;
  // With --keep: how long the sandbox waits for its next run.
  std::optional<std::chrono::milliseconds> keep;
  Isolation min_isolation = Isolation::container;
  bool manifest = false;
  bool overwrite = false;
  bool check = false;
  bool forward_stdin = false;
  bool json = false;
  bool verbose = false;
};

// Both throw `InvalidArgument`, one line naming the option, the value and what would be accepted.
//
// What says how a sandbox is made, and nothing of a program, its files and its conversation.
RunOptions read_sandbox_options(const ParsedLine& line, const HostVariable& host_variable);
RunOptions read_run_options(const ParsedLine& line, const HostVariable& host_variable);

// Joins the host tools of casemate.toml to those of the line; where both have one of a name, that
// of the line is taken.
void add_host_tools(RunOptions& options, const std::vector<HostToolSetting>& configured);

}  // namespace casemate::app
