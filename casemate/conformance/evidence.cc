#include "casemate/conformance/evidence.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "casemate/core/exec.h"

namespace casemate::conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::array kNamespaces{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
// Of which a container has its own; the user's and the control groups' may be the host's.
constexpr std::array kContained{"ipc", "mnt", "net", "pid", "uts"};
// The bounding set may be full: it gives nothing to a program that has none and gains none.
constexpr std::array kHeld{"CapInh", "CapPrm", "CapEff", "CapAmb"};
constexpr std::string_view kNoCapability = "0000000000000000";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The first word of `line`, which loses it and the blanks behind it.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return word;
}

template <typename Act>
void for_each_line(std::string_view text, const Act& act) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    act(line);
  }
}

std::string root_of(std::string_view mounts) {
  std::string root;
  for_each_line(mounts, [&](std::string_view line) {
    take_word(line);
    take_word(line);
    const std::string_view device = take_word(line);
    const std::string_view directory = take_word(line);
    // The last one covers the others.
    if (take_word(line) == "/") root = fmt::format("{} {}", device, directory);
  });
  return root;
}

bool has_own(const PlaceFacts& facts, const PlaceFacts& host, const std::string& kind) {
  const auto found = facts.namespaces.find(kind);
  const auto ours = host.namespaces.find(kind);
  return found != facts.namespaces.end() && found->second.starts_with(kind + ":[") &&
         (ours == host.namespaces.end() || found->second != ours->second);
}

bool is(const std::map<std::string, std::string>& facts, const std::string& name,
        std::string_view value) {
  const auto found = facts.find(name);
  return found != facts.end() && found->second == value;
}

// Whether somebody in there is root here. Only of a map that was read on this host: to who is
// inside it names the ids of the namespace above, whose root may be anybody.
bool maps_own_root(const PlaceFacts& facts) {
  return std::ranges::any_of(facts.uid_map, [](std::string_view line) {
    take_word(line);
    return take_word(line) == "0";
  });
}

class Judge {
 public:
  explicit Judge(const Evidence& evidence) : evidence_(evidence) {}

  void need(bool shown, std::string what) {
    if (!shown) lacking_.push_back(std::move(what));
  }
  void a_confined_process() {
    for (const char* set : kHeld) {
      need(is(inside().capabilities, set, kNoCapability), fmt::format("no capability in {}", set));
    }
    need(inside().no_new_privs == "1", "no_new_privs");
    need(inside().seccomp == "2" || has_own(inside(), host(), "mnt"),
         "a system call filter or a mount namespace of its own");
  }
  void a_root_and_namespaces_of_its_own() {
    for (const char* kind : kContained) {
      need(has_own(inside(), host(), kind), fmt::format("a {} namespace of its own", kind));
    }
    need(!inside().root.empty() && inside().root != host().root, "a root directory of its own");
    if (!evidence_.outside) return;
    for (const char* kind : kContained) {
      need(!evidence_.outside->namespaces.contains(kind) ||
               has_own(*evidence_.outside, host(), kind),
           fmt::format("a {} namespace of its own, seen from outside", kind));
    }
  }
  void a_kernel_of_its_own() {
    need((!inside().kernel.empty() && inside().kernel != host().kernel) ||
             (!inside().boot.empty() && inside().boot != host().boot),
         "a kernel that is not the host's");
  }
  void a_virtual_machine() {
    need(evidence_.outside && evidence_.outside->has_virtual_machine,
         "a first process on this host that has a virtual machine of the kernel's open");
  }
  std::vector<std::string> lacking() && { return std::move(lacking_); }

 private:
  const PlaceFacts& inside() const { return evidence_.inside; }
  const PlaceFacts& host() const { return evidence_.host; }

  const Evidence& evidence_;
  std::vector<std::string> lacking_;
};

}  // namespace

const char kTellFacts[] =
    "cat /proc/self/status; "
    "for kind in cgroup ipc mnt net pid user uts; do "
    "echo \"namespace $(readlink /proc/self/ns/$kind)\"; done; "
    "while read -r words; do echo \"uids $words\"; done < /proc/self/uid_map; "
    "while read -r words; do case $words in *:*) echo \"interface ${words%%:*}\";; esac; done "
    "< /proc/net/dev; "
    "while read -r id parent device root point rest; do "
    "[ \"$point\" != / ] || echo \"root $device $root\"; done < /proc/self/mountinfo; "
    "echo \"kernel $(uname -r -v)\"; echo \"boot $(cat /proc/sys/kernel/random/boot_id)\"";

PlaceFacts parse_facts(std::string_view text) {
  PlaceFacts facts;
  for_each_line(text, [&](std::string_view line) {
    const std::string_view name = take_word(line);
    const std::string value(line);
    if (name == "namespace") {
      facts.namespaces[value.substr(0, value.find(':'))] = value;
    } else if (name.starts_with("Cap") && name.ends_with(':')) {
      facts.capabilities[std::string(name.substr(0, name.size() - 1))] = value;
    } else if (name == "NoNewPrivs:") {
      facts.no_new_privs = value;
    } else if (name == "Seccomp:") {
      facts.seccomp = value;
    } else if (name == "uids") {
      facts.uid_map.push_back(value);
    } else if (name == "interface") {
      facts.interfaces.insert(value);
    } else if (name == "root") {
      facts.root = value;
    } else if (name == "kernel") {
      facts.kernel = value;
    } else if (name == "boot") {
      facts.boot = value;
    }
  });
  return facts;
}

PlaceFacts facts_of_process(const std::string& process) {
  const fs::path folder = fs::path("/proc") / process;
  PlaceFacts facts = parse_facts(text_of(folder / "status"));
  std::error_code hidden;
  for (const char* kind : kNamespaces) {
    const fs::path target = fs::read_symlink(folder / "ns" / kind, hidden);
    if (!hidden) facts.namespaces[kind] = target;
  }
  for_each_line(text_of(folder / "uid_map"), [&](std::string_view line) {
    const std::string_view first = take_word(line);
    const std::string_view second = take_word(line);
    facts.uid_map.push_back(fmt::format("{} {} {}", first, second, take_word(line)));
  });
  facts.root = root_of(text_of(folder / "mountinfo"));
  for (fs::directory_iterator each(folder / "fd", hidden), end; !hidden && each != end;
       each.increment(hidden)) {
    std::error_code gone;
    if (fs::read_symlink(each->path(), gone) == "anon_inode:kvm-vm")
      facts.has_virtual_machine = true;
  }
  return facts;
}

Evidence gather_evidence(const Sandbox& sandbox, Call* call, const CallControl& control) {
  Evidence evidence;
  if (call != nullptr) {
    ExecRequest request;
    request.command = ShellLine{kTellFacts};
    evidence.inside = parse_facts(call->exec(request, control).stdout);
  }
  if (const auto process = sandbox.first_process()) {
    evidence.outside = facts_of_process(fmt::format("{}", *process));
  }
  evidence.host = facts_of_process("self");
  std::string boot = text_of("/proc/sys/kernel/random/boot_id");
  evidence.host.boot = boot.substr(0, boot.find('\n'));
  utsname names{};
  if (uname(&names) == 0) {
    evidence.host.kernel = fmt::format("{} {}", names.release, names.version);
  }
  return evidence;
}

std::vector<std::string> lacking_evidence(Isolation rung, const Evidence& evidence) {
  Judge judge(evidence);
  switch (rung) {
    case Isolation::process:
      break;
    case Isolation::runtime:
      judge.need(false, "a fence that can be looked at: none of an interpreter's can");
      break;
    case Isolation::os_process:
      judge.a_confined_process();
      break;
    case Isolation::container:
      judge.a_confined_process();
      judge.a_root_and_namespaces_of_its_own();
      break;
    case Isolation::hardened_container:
      judge.a_kernel_of_its_own();
      break;
    case Isolation::microvm:
    case Isolation::vm:
      judge.a_kernel_of_its_own();
      judge.a_virtual_machine();
      break;
  }
  return std::move(judge).lacking();
}

std::vector<std::string> lacking_hardening(const Evidence& evidence) {
  Judge judge(evidence);
  const PlaceFacts& inside = evidence.inside;
  judge.need(inside.seccomp == "2", "a system call filter");
  judge.need(has_own(inside, evidence.host, "user"), "a user namespace of its own");
  judge.need(!evidence.outside || !maps_own_root(*evidence.outside),
             "a user namespace without this host's root, seen from outside");
  judge.need(has_own(inside, evidence.host, "cgroup"), "a cgroup namespace of its own");
  judge.need(is(inside.capabilities, "CapBnd", kNoCapability), "no capability in CapBnd");
  judge.need(inside.interfaces == std::set<std::string>{"lo"},
             "loopback as its only network interface");
  return std::move(judge).lacking();
}

}  // namespace casemate::conformance
