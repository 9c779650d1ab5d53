#include "casemate/local/control_groups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <system_error>

#include "casemate/local/group_detection.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

constexpr std::string_view kOwnGroup = "casemate";
constexpr std::uint64_t kPeriodMicroseconds = 100000;
constexpr const char* kSocketMemoryFile = "memory.kmem.tcp.limit_in_bytes";

std::string own_group(const ControllerPlace& place) {
  return place.base + "/" + std::string(kOwnGroup);
}
std::string sandbox_group(const ControllerPlace& place, std::string_view id) {
  return own_group(place) + "/" + std::string(id);
}
// Version 1 lets a group with members have groups below it.
std::string agent_group(const ControllerPlace& place, std::string_view id) {
  return sandbox_group(place, id) + (place.unified ? "/agent" : "");
}
std::string programs_group(const ControllerPlace& place, std::string_view id) {
  return sandbox_group(place, id) + "/calls";
}
std::string call_group(const ControllerPlace& place, std::string_view id, std::string_view call) {
  return programs_group(place, id) + "/call-" + std::string(call);
}

void add_unique(std::vector<std::string>& list, std::string value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(std::move(value));
}

class Steps {
 public:
  void directory(std::string path, std::optional<Limit> holds) {
    const bool known = std::any_of(steps_.begin(), steps_.end(), [&](const GroupStep& step) {
      return step.file.empty() && step.directory == path;
    });
    if (!known) steps_.push_back({std::move(path), "", "", holds});
  }
  void write(std::string path, std::string file, std::string value, std::optional<Limit> holds) {
    steps_.push_back({std::move(path), std::move(file), std::move(value), holds});
  }
  // Version 2 hands a controller down one level only where it is told to.
  void hand_down(const ControllerPlace& place, const std::string& path, std::string_view controller,
                 Limit limit) {
    if (place.unified) write(path, "cgroup.subtree_control", "+" + std::string(controller), limit);
  }
  // The groups from the hierarchy's root down to the one that holds a sandbox's programs.
  void programs(const ControllerPlace& place, std::string_view id, std::string_view controller,
                Limit limit) {
    hand_down(place, place.base, controller, limit);
    for (const std::string& group : {own_group(place), sandbox_group(place, id)}) {
      directory(group, limit);
      hand_down(place, group, controller, limit);
    }
    directory(programs_group(place, id), limit);
  }
  std::vector<GroupStep> take() { return std::move(steps_); }

 private:
  std::vector<GroupStep> steps_;
};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  try {
    const auto text = sys::read_file_if_there(AT_FDCWD, path.c_str(), 4096);
    return text ? parse_number(*text) : std::nullopt;
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

// Of lines "key value".
std::optional<std::uint64_t> find_keyed(std::string_view text, std::string_view key) {
  for (const std::string_view line : split_parts(text, '\n')) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ') {
      return parse_number(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace

ControlGroupLayout held_part(ControlGroupLayout layout, const std::set<Limit>& ungrouped) {
  if (ungrouped.contains(Limit::memory)) layout.memory.reset();
  if (ungrouped.contains(Limit::pids)) layout.pids.reset();
  if (ungrouped.contains(Limit::cpu)) layout.cpu.reset();
  return layout;
}

std::vector<GroupStep> sandbox_steps(const ControlGroupLayout& layout, std::string_view id,
                                     const Resources& resources, GroupMembers members) {
  Steps steps;
  const bool for_calls = members == GroupMembers::calls;
  if (layout.memory) {
    const ControllerPlace& place = *layout.memory;
    const std::string group = programs_group(place, id);
    const std::string bytes =
        std::to_string(resources.memory_bytes.value + resources.disk_bytes.value);
    steps.programs(place, id, "memory", Limit::memory);
    if (for_calls) steps.hand_down(place, group, "memory", Limit::memory);
    if (place.unified) {
      steps.write(group, "memory.max", bytes, Limit::memory);
      steps.write(group, "memory.swap.max", "0", std::nullopt);
    } else {
      steps.write(group, "memory.limit_in_bytes", bytes, Limit::memory);
      steps.write(group, "memory.memsw.limit_in_bytes", bytes, std::nullopt);
      // Version 1 counts what sockets hold apart from the rest.
      steps.write(group, kSocketMemoryFile, bytes, std::nullopt);
    }
    steps.directory(agent_group(place, id), Limit::memory);
  }
  if (layout.cpu) {
    const ControllerPlace& place = *layout.cpu;
    const std::string group = programs_group(place, id);
    const std::string quota =
        std::to_string(resources.cpu_millis.value * kPeriodMicroseconds / 1000);
    steps.programs(place, id, "cpu", Limit::cpu);
    if (place.unified) {
      steps.write(group, "cpu.max", quota + " " + std::to_string(kPeriodMicroseconds), Limit::cpu);
    } else {
      // The period is the one that each group begins with. For each of the two the kernel looks at
      // all groups of the machine.
      steps.write(group, "cpu.cfs_quota_us", quota, Limit::cpu);
    }
    steps.directory(agent_group(place, id), Limit::cpu);
  }
  if (layout.pids) {
    const ControllerPlace& place = *layout.pids;
    steps.programs(place, id, "pids", Limit::pids);
    if (for_calls) steps.hand_down(place, programs_group(place, id), "pids", Limit::pids);
  }
  if (layout.accounting) {
    const ControllerPlace& place = *layout.accounting;
    const auto holds = resources.cpu_seconds ? std::optional(Limit::cpu) : std::nullopt;
    for (const std::string& group :
         {own_group(place), sandbox_group(place, id), programs_group(place, id)}) {
      steps.directory(group, holds);
    }
  }
  return steps.take();
}

std::vector<GroupStep> call_steps(const ControlGroupLayout& layout, std::string_view id,
                                  std::string_view call, std::uint64_t pids) {
  Steps steps;
  if (layout.memory) {
    const std::string group = call_group(*layout.memory, id, call);
    steps.directory(group, Limit::memory);
    // Without a bound of its own, if only this one, a group's sockets are not counted at all.
    if (!layout.memory->unified) steps.write(group, kSocketMemoryFile, "-1", std::nullopt);
  }
  if (layout.accounting) steps.directory(call_group(*layout.accounting, id, call), std::nullopt);
  if (layout.pids) {
    const std::string group = call_group(*layout.pids, id, call);
    steps.directory(group, Limit::pids);
    steps.write(group, "pids.max", std::to_string(pids), Limit::pids);
  }
  return steps.take();
}

std::vector<std::string> sandbox_directories(const ControlGroupLayout& layout,
                                             std::string_view id) {
  std::vector<std::string> list;
  for (const auto& place : {layout.memory, layout.cpu, layout.pids, layout.accounting}) {
    if (!place) continue;
    add_unique(list, programs_group(*place, id));
    if (place->unified) add_unique(list, agent_group(*place, id));
    add_unique(list, sandbox_group(*place, id));
  }
  return list;
}

std::vector<std::string> agent_directories(const ControlGroupLayout& layout, std::string_view id) {
  std::vector<std::string> list;
  for (const auto& place : {layout.memory, layout.cpu}) {
    if (place) add_unique(list, agent_group(*place, id));
  }
  return list;
}

std::vector<std::string> bounded_directories(const ControlGroupLayout& layout,
                                             std::string_view id) {
  std::vector<std::string> list;
  for (const auto& place : {layout.memory, layout.cpu}) {
    if (place) add_unique(list, programs_group(*place, id));
  }
  return list;
}

std::vector<std::string> call_directories(const ControlGroupLayout& layout, std::string_view id,
                                          std::string_view call) {
  std::vector<std::string> list;
  for (const auto& place : {layout.memory, layout.pids, layout.accounting}) {
    if (place) add_unique(list, call_group(*place, id, call));
  }
  return list;
}

std::vector<std::string> member_directories(const ControlGroupLayout& layout, std::string_view id,
                                            std::string_view call) {
  std::vector<std::string> list = call_directories(layout, id, call);
  // In version 1 the processor's share has a hierarchy of its own, in which calls have no groups.
  if (layout.cpu && !layout.cpu->unified) add_unique(list, programs_group(*layout.cpu, id));
  return list;
}

std::map<Limit, std::string> carry_out(const std::vector<GroupStep>& steps) {
  std::map<Limit, std::string> failed;
  std::set<std::string> missing;
  for (const GroupStep& step : steps) {
    if (missing.contains(step.directory)) continue;
    try {
      if (step.file.empty()) {
        sys::make_directory_at(AT_FDCWD, step.directory.c_str(), 0755);
      } else {
        sys::write_control_file_at(AT_FDCWD, (step.directory + "/" + step.file).c_str(),
                                   step.value);
      }
    } catch (const std::system_error& error) {
      if (step.file.empty()) missing.insert(step.directory);
      if (step.holds) failed.try_emplace(*step.holds, error.what());
    }
  }
  return failed;
}

PartedSteps part_steps(std::vector<GroupStep> steps, const std::vector<std::string>& directories) {
  const auto leads = [&](const GroupStep& step) {
    return std::ranges::any_of(directories, [&](const std::string& directory) {
      return directory == step.directory || directory.starts_with(step.directory + "/");
    });
  };
  const auto others = std::ranges::stable_partition(steps, leads);
  PartedSteps parts;
  parts.others.assign(std::make_move_iterator(others.begin()),
                      std::make_move_iterator(others.end()));
  steps.erase(others.begin(), others.end());
  parts.leading = std::move(steps);
  return parts;
}

namespace {

// Version 1 has `tasks` beside `cgroup.procs`. A thread that moves itself by it skips a lock of the
// kernel's for the whole machine, whose writers wait for an RCU grace period (10 ms and more) and
// meanwhile hold up every fork.
sys::UniqueFd open_member(const std::string& directory) {
  try {
    return sys::open_at(AT_FDCWD, (directory + "/tasks").c_str(), O_WRONLY);
  } catch (const std::system_error& error) {
    if (error.code().value() != ENOENT) throw;
    return sys::open_at(AT_FDCWD, (directory + "/cgroup.procs").c_str(), O_WRONLY);
  }
}

}  // namespace

std::vector<sys::UniqueFd> open_members(const std::vector<std::string>& directories) {
  std::vector<sys::UniqueFd> members;
  for (const std::string& directory : directories) {
    try {
      members.push_back(open_member(directory));
    } catch (const std::system_error& error) {
      // Not there: its limit is among those that cannot be held, which was said when it was made.
      if (error.code().value() != ENOENT) throw;
    }
  }
  return members;
}

std::string cpu_counter_file(const ControlGroupLayout& layout, std::string_view id,
                             std::string_view call) {
  if (!layout.accounting) return "";
  return call_group(*layout.accounting, id, call) +
         (layout.accounting->unified ? "/cpu.stat" : "/cpuacct.usage");
}

namespace {

// None where the kernel has no such counter.
sys::UniqueFd open_counter(const std::string& path) {
  sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno != ENOENT) sys::throw_errno("opening " + path);
  return file;
}

// The whole of it, none of which is longer.
class CounterText {
 public:
  explicit CounterText(const sys::UniqueFd& file)
      : size_(file ? pread(file.get(), text_.data(), text_.size(), 0) : -1) {}
  std::string_view view() const {
    return {text_.data(), static_cast<std::size_t>(std::max<ssize_t>(size_, 0))};
  }

 private:
  std::array<char, 4096> text_;
  ssize_t size_;
};

}  // namespace

CounterFiles::CounterFiles(const ControlGroupLayout& layout, std::string_view id,
                           std::string_view call) {
  if (layout.memory) {
    const std::string group = call_group(*layout.memory, id, call);
    const bool unified = layout.memory->unified;
    memory_kills_ = open_counter(group + (unified ? "/memory.events" : "/memory.oom_control"));
    peak_memory_ = open_counter(group + (unified ? "/memory.peak" : "/memory.max_usage_in_bytes"));
  }
  if (layout.pids) {
    refused_forks_ = open_counter(call_group(*layout.pids, id, call) + "/pids.events");
  }
  if (layout.accounting) {
    cpu_ = open_counter(cpu_counter_file(layout, id, call));
    cpu_is_unified_ = layout.accounting->unified;
  }
}

GroupCounters CounterFiles::read() const {
  GroupCounters counters{.memory_kills = find_keyed(CounterText(memory_kills_).view(), "oom_kill"),
                         .refused_forks = find_keyed(CounterText(refused_forks_).view(), "max"),
                         .cpu_nanoseconds = {},
                         .peak_memory = parse_number(CounterText(peak_memory_).view())};
  const CounterText cpu(cpu_);
  if (cpu_is_unified_) {
    const auto microseconds = find_keyed(cpu.view(), "usage_usec");
    if (microseconds) counters.cpu_nanoseconds = *microseconds * 1000;
  } else {
    counters.cpu_nanoseconds = parse_number(cpu.view());
  }
  return counters;
}

SandboxUse read_use(const ControlGroupLayout& layout, std::string_view id) {
  SandboxUse use;
  if (layout.memory) {
    const bool unified = layout.memory->unified;
    use.memory_bytes = read_number(sandbox_group(*layout.memory, id) +
                                   (unified ? "/memory.current" : "/memory.usage_in_bytes"))
                           .value_or(0);
  }
  if (layout.pids) {
    use.processes = read_number(sandbox_group(*layout.pids, id) + "/pids.current").value_or(0);
  }
  return use;
}

}  // namespace casemate::local
