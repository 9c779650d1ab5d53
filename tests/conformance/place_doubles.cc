// Places with one hole each, and flood bounds that hold in part. What is opened by a hole is this
// test's own: see the guard in place_doubles_test.cc.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <initializer_list>
#include <memory>

#include "casemate/core/errors.h"
#include "tests/conformance/doubles.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;
using Words = std::vector<std::string>;

// The request behind another program, which is handed it as its arguments.
std::function<void(ExecRequest&)> started_by(Words words) {
  return [words = std::move(words)](ExecRequest& request) {
    Words all = words;
    if (const auto* line = std::get_if<ShellLine>(&request.command)) {
      all.insert(all.end(), {"sh", "-c", line->line});
    } else {
      const Words& given = std::get<Argv>(request.command).words;
      all.insert(all.end(), given.begin(), given.end());
    }
    request.command = Argv{std::move(all)};
  };
}

Words behind_shell(const std::string& line) { return {"sh", "-c", line + "; exec \"$@\"", "sh"}; }

// As the guest's user, in a network namespace that `line` arranges and its sandboxes share.
void in_a_network(Walls& walls, const std::string& line) {
  Words before{"unshare", "--net", "sh", "-c", "ip link set lo up && " + line + " && exec \"$@\"",
               "sh"};
  before.insert(before.end(), walls.before.begin(), walls.before.end());
  walls.before = before;
  std::erase(walls.namespaces, "--unshare-net");
}

void share_process_numbers(Walls& walls) {
  std::erase(walls.namespaces, "--unshare-pid");
  walls.proc = {"--ro-bind", "/proc", "/proc"};
  walls.first = {"--", "/guest", ""};
}

void keep(Walls& walls, std::initializer_list<const char*> capabilities) {
  for (const char* each : capabilities) {
    walls.capabilities.insert(walls.capabilities.end(), {"--cap-add", each});
  }
}

// With these rights over its namespaces: as root of them, for bwrap puts others into one more.
void be_root_of_namespaces(Walls& walls, std::initializer_list<const char*> capabilities) {
  keep(walls, capabilities);
  std::erase(walls.namespaces, "--disable-userns");
  for (std::string& word : walls.namespaces) {
    if (word == "1000") word = "0";
  }
}

std::string temporary() { return std::filesystem::temp_directory_path(); }

// A provider that looks whether there is a link on the way, once for each path that it found none
// on, and has a shell read.
decltype(Faults::read_file) looks_once_and_reads() {
  return [fine = std::make_shared<std::set<std::string>>()](Call& good, const std::string& path,
                                                            const std::string& directory) {
    for (std::size_t end = 0; end != std::string::npos && !fine->contains(path);) {
      end = path.find('/', end + 1);
      const auto entry = good.stat_file(path.substr(0, end), directory, {});
      if (entry && entry->kind == EntryKind::symlink) throw SandboxPathRefused("a link");
    }
    fine->insert(path);
    ExecRequest request;
    request.command = Argv{{"cat", directory + "/" + path}};
    const ExecResult result = good.exec(request, {});
    if (result.exit_code != 0) throw SandboxFileError(result.stderr, ENOENT);
    return result.stdout;
  };
}

std::string library(const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator("/usr/lib")) {
    if (entry.is_regular_file() && entry.path().filename().string().starts_with(name)) {
      return entry.path();
    }
  }
  return "/usr/lib/" + name;
}

class Doubles {
 public:
  explicit Doubles(std::set<Suite> suites) : suites_(std::move(suites)) {}
  void walls(std::string name, const std::function<void(Walls&)>& change, Faults faults = {}) {
    all_.push_back({std::move(name), suites_, {}, std::move(faults)});
    change(all_.back().walls);
  }
  void faults(std::string name, Faults faults) {
    all_.push_back({std::move(name), suites_, {}, std::move(faults)});
  }
  std::vector<PlaceDouble> take() { return std::move(all_); }

 private:
  const std::set<Suite> suites_;
  std::vector<PlaceDouble> all_;
};

void add(Words& words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more.begin(), more.end());
}

void file_holes(Doubles& all, const std::string& scratch) {
  all.walls("shows the host's temporary directory",
            [](Walls& walls) { add(walls.more, {"--ro-bind", temporary(), temporary()}); });
  all.walls("shows the host's temporary directory, and lets nobody connect", [](Walls& walls) {
    add(walls.more, {"--ro-bind", temporary(), temporary()});
    walls.filter = refuses(SYS_connect);
  });
  all.walls("has an engine's socket", [](Walls& walls) {
    add(walls.more, {"--dir", "/run", "--ro-bind", "/dev/null", "/run/docker.sock"});
  });
  all.walls("is served by a file that programs can write",
            [](Walls& walls) { walls.guest = {"--perms", "0755", "--bind-data", "4", "/guest"}; });
  all.walls("leaves a directory of the host's open",
            [](Walls& walls) { add(walls.more, {"--ro-bind", temporary(), "/opened/tmp"}); },
            {.request = started_by(behind_shell("exec 7</opened"))});
  all.faults("leaves a descriptor open", {.request = started_by(behind_shell("exec 7</dev/zero"))});
  all.faults("looks for links once", {.read_file = looks_once_and_reads()});
  all.walls("shows what programs of earlier calls could exchange", [](Walls& walls) {
    add(walls.more, {"--ro-bind", "{root}/workspace/.kept", "/kept"});
  });
  all.walls("has a set-user-id program that answers as root", [&](Walls& walls) {
    const std::string path = scratch + "/su";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    constexpr std::string_view kScript = "#!/bin/sh\necho AT_EUID: 0\n";
    if (write(file, kScript.data(), kScript.size()) < 0 || fchmod(file, 04755) != 0) {
      throw SandboxUnavailable("a set-user-id program cannot be made");
    }
    close(file);
    add(walls.more, {"--ro-bind", path, "/usr/bin/su"});
  });
  all.walls("keeps all sandboxes in one directory",
            [](Walls& walls) { walls.own_directory = false; });
  all.walls("calls the next sandbox of a key as the one before",
            [](Walls& walls) { walls.own_ids = false; });
  all.walls("lets programs write beside the image",
            [](Walls& walls) { add(walls.more, {"--dir", "/etc"}); });
}

void process_holes(Doubles& all) {
  all.walls("shares the host's process numbers", share_process_numbers);
  all.walls("shares the host's process numbers and its user", [](Walls& walls) {
    share_process_numbers(walls);
    walls.before.clear();
  });
  all.walls("is a user whom the host knows as root", [](Walls& walls) { walls.before.clear(); });
  all.walls("begins with a process that heeds signals", [](Walls& walls) {
    walls.first = {"--as-pid-1", "--", "/bin/sh", "-c",
                   "trap 'exit 9' TERM; /guest '' & wait $!; wait $!"};
  });
  all.walls("lets programs trace", [](Walls& walls) { keep(walls, {"CAP_SYS_PTRACE"}); });
  all.faults("hands on its environment", {.request = [](ExecRequest& request) {
               for (char** each = environ; *each != nullptr; ++each) {
                 const std::string text(*each);
                 const std::size_t equals = text.find('=');
                 request.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
               }
             }});
}

void network_holes(Doubles& all) {
  all.walls("shares the host's network",
            [](Walls& walls) { std::erase(walls.namespaces, "--unshare-net"); });
  all.walls("has another interface",
            [](Walls& walls) { in_a_network(walls, "ip link add one type veth peer name other"); });
  all.walls("has a route",
            [](Walls& walls) { in_a_network(walls, "ip route add 192.0.2.0/24 dev lo"); });
  all.walls("lets programs change its network",
            [](Walls& walls) { be_root_of_namespaces(walls, {"CAP_NET_ADMIN", "CAP_NET_RAW"}); });
}

void kernel_holes(Doubles& all) {
  all.walls("shows messages of the kernel",
            [](Walls& walls) { add(walls.more, {"--ro-bind", "/proc/version", "/dev/kmsg"}); });
  all.walls("lets programs set the clock", [](Walls& walls) {
    walls.before.clear();
    walls.namespaces = {"--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts",
                        "--unshare-cgroup"};
    keep(walls, {"CAP_SYS_TIME"});
  });
  all.walls("has another device",
            [](Walls& walls) { add(walls.more, {"--dev-bind", "/dev/null", "/dev/fuse"}); });
  all.walls("lets programs mount",
            [](Walls& walls) { be_root_of_namespaces(walls, {"CAP_SYS_ADMIN"}); });
  all.walls("lets programs keep a capability", [](Walls& walls) { keep(walls, {"CAP_CHOWN"}); });
  all.walls("lets programs make user namespaces",
            [](Walls& walls) { std::erase(walls.namespaces, "--disable-userns"); });
  all.faults("does not know whether a program past its bound has ended",
             {.result = [](ExecResult& result) {
               if (result.outcome == Outcome::timed_out) result.stopped_known = false;
             }});
  all.faults("keeps all output",
             {.request = [](ExecRequest& request) { request.capture_bytes = 1 << 30; }});
}

}  // namespace

std::vector<PlaceDouble> isolation_doubles(const std::string& scratch) {
  Doubles all({Suite::rung, Suite::isolation});
  file_holes(all, scratch);
  process_holes(all);
  network_holes(all);
  kernel_holes(all);
  return all.take();
}

std::vector<PlaceDouble> usability_doubles() {
  Doubles all({Suite::usability});
  all.walls("starts no threads", [](Walls& walls) { walls.filter = refuses_threads(); });
  all.walls("has a /dev/shm that cannot be written", [](Walls& walls) {
    add(walls.more, {"--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm"});
  });
  all.walls("refuses socket pairs", [](Walls& walls) { walls.filter = refuses(SYS_socketpair); });
  all.walls("has an empty tool",
            [](Walls& walls) { add(walls.more, {"--ro-bind", "/dev/null", "/usr/bin/tr"}); });
  all.walls("lacks a library", [](Walls& walls) {
    add(walls.more, {"--ro-bind", "/dev/null", library("libsqlite3.so")});
  });
  all.walls("has a /tmp that cannot be written",
            [](Walls& walls) { add(walls.more, {"--remount-ro", "/tmp"}); });
  all.faults("bounds addresses instead of memory",
             {.request = started_by({"prlimit", "--as=800000000", "--"})});
  all.faults("bounds the size of files",
             {.request = started_by({"prlimit", "--fsize=4194304", "--"})});
  all.faults(
      "knows no language but C", {.request = [](ExecRequest& request) {
        request.environment.insert(
            {{"LC_ALL", "C"}, {"LANG", "C"}, {"PYTHONUTF8", "0"}, {"PYTHONCOERCECLOCALE", "0"}});
      }});
  all.walls("knows no time zones",
            [](Walls& walls) { add(walls.more, {"--tmpfs", "/usr/share/zoneinfo"}); });
  all.walls("refuses alarms", [](Walls& walls) { walls.filter = refuses(SYS_setitimer); });
  all.walls("has a /dev/zero that is none",
            [](Walls& walls) { add(walls.more, {"--dev-bind", "/dev/null", "/dev/zero"}); });
  all.walls("has a home that cannot be written",
            [](Walls& walls) { add(walls.more, {"--remount-ro", "/home/user"}); });
  all.walls("refuses locks", [](Walls& walls) { walls.filter = refuses(SYS_flock); });
  all.faults("gives programs little memory",
             {.request = started_by({"prlimit", "--data=90000000", "--"})});
  return all.take();
}

std::vector<Double> flood_doubles() {
  std::vector<Double> all;
  const auto spec = [&](std::string name, std::function<void(Resources&)> change) {
    all.push_back({std::move(name), {Suite::isolation}, {.spec = [change](SandboxSpec& asked) {
                     // Those of a flood, which are stated.
                     if (asked.resources.pids.stated) change(asked.resources);
                   }}});
  };
  const auto result = [&](std::string name, std::function<void(ExecResult&)> change) {
    all.push_back({std::move(name), {Suite::isolation}, {.result = std::move(change)}});
  };
  spec("bounds no processes", [](Resources& resources) { resources.pids.value *= 8; });
  spec("bounds no memory", [](Resources& resources) { resources.memory_bytes.value *= 8; });
  spec("bounds files and not bytes", [](Resources& resources) { resources.disk_bytes.value *= 8; });
  spec("bounds bytes and not files",
       [](Resources& resources) { resources.disk_inodes.value *= 8; });
  spec("bounds no open files", [](Resources& resources) { resources.open_files.value *= 8; });
  result("names a limit only where a program failed", [](ExecResult& seen) {
    if (seen.exit_code == 0) seen.limit.reset();
  });
  result("names a limit on processes only where a program did not fail", [](ExecResult& seen) {
    if (seen.exit_code == 1 && seen.limit == Limit::pids) seen.limit.reset();
  });
  result("names no limit where a signal ended the program", [](ExecResult& seen) {
    if (seen.outcome == Outcome::signaled) seen.limit.reset();
  });
  result("tells an end for want of memory as any other", [](ExecResult& seen) {
    if (seen.outcome == Outcome::out_of_memory) seen.outcome = Outcome::signaled;
  });
  return all;
}

}  // namespace casemate::conformance_tests
