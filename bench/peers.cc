#include "bench/peers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/own_directory.h"
#include "bench/process.h"
#include "casemate/base/digest.h"

namespace casemate::bench {
namespace {

using Words = std::vector<std::string>;

const Words kTrue{"/usr/bin/true"};
const Words kPrint{"/usr/bin/python3", "-c", "print(1)"};

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// -- bubblewrap
// ------------------------------------------------------------------------------------

Words bwrap(const Words& program) {
  return joined({"bwrap",
                 "--unshare-all",
                 "--die-with-parent",
                 "--new-session",
                 "--clearenv",
                 "--ro-bind",
                 "/usr",
                 "/usr",
                 "--symlink",
                 "usr/bin",
                 "/bin",
                 "--symlink",
                 "usr/lib",
                 "/lib",
                 "--symlink",
                 "usr/lib64",
                 "/lib64",
                 "--ro-bind",
                 "/etc/ld.so.cache",
                 "/etc/ld.so.cache",
                 "--proc",
                 "/proc",
                 "--dev",
                 "/dev",
                 "--tmpfs",
                 "/tmp",
                 "--cap-drop",
                 "ALL"},
                program);
}

// -- crun and runc
// ---------------------------------------------------------------------------------

// They refuse, or fail, where version 2 of control groups is mounted beside version 1; without that
// mount, in a mount namespace of their own, they work.
Words in_own_mounts(const Words& runtime) {
  if (!std::filesystem::exists("/sys/fs/cgroup/unified")) return runtime;
  return joined(
      {"unshare", "--mount", "sh", "-c", "umount /sys/fs/cgroup/unified && exec \"$@\"", "sh"},
      runtime);
}

std::string bundle_config(const Words& program) {
  std::string words;
  for (const std::string& word : program) {
    words += fmt::format("{}\"{}\"", words.empty() ? "" : ",", word);
  }
  return fmt::format(R"({{
"ociVersion": "1.0.2",
"process": {{"terminal": false, "user": {{"uid": 0, "gid": 0}}, "args": [{}],
  "env": ["PATH=/usr/bin:/bin"], "cwd": "/", "noNewPrivileges": true}},
"root": {{"path": "rootfs", "readonly": true}},
"hostname": "sandbox",
"mounts": [
  {{"destination": "/proc", "type": "proc", "source": "proc"}},
  {{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}},
  {{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}},
  {{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}}],
"linux": {{"resources": {{"memory": {{"limit": 536870912}}, "pids": {{"limit": 128}}}},
  "namespaces": [{{"type": "pid"}}, {{"type": "network"}}, {{"type": "ipc"}}, {{"type": "uts"}},
    {{"type": "mount"}}, {{"type": "cgroup"}}]}}
}})",
                     words);
}

// Of a directory: "<runtime> <container>".
constexpr char kContainerFile[] = "container";

// Bundles of one runtime, and a container of it that is running.
class Bundles {
 public:
  explicit Bundles(std::string runtime) : runtime_(std::move(runtime)) {
    // For whoever finds it without its process.
    std::ofstream(directory_.path() / kContainerFile) << runtime_ << ' ' << id_ << '\n';
    add("true", kTrue);
    add("print", kPrint);
    add("sleep", {"/usr/bin/sleep", "infinity"});
    time_process(
        command({"run", "--detach", "--bundle", (directory_.path() / "sleep").string(), id_}));
    running_ = true;
  }
  ~Bundles() {
    try {
      if (running_) time_process(command({"delete", "--force", id_}));
    } catch (const std::exception&) {
      // Its own tool says what is left: the table goes on.
    }
  }
  Bundles(const Bundles&) = delete;
  Bundles& operator=(const Bundles&) = delete;

  // Ends the containers that a killed process left with its directory.
  static void end_left(const std::filesystem::path& directory) {
    std::string runtime;
    std::string id;
    if (!(std::ifstream(directory / kContainerFile) >> runtime >> id)) return;
    for (const char* bundle : {"", "-true", "-print"}) {
      try {
        time_process(in_own_mounts({runtime, "delete", "--force", id + bundle}));
      } catch (const std::exception&) {
        // There was none.
      }
    }
  }

  Words run(const std::string& bundle) const {
    return command({"run", "--bundle", (directory_.path() / bundle).string(), id_ + "-" + bundle});
  }
  Words exec(const Words& program) const { return command(joined({"exec", id_}, program)); }

 private:
  Words command(const Words& words) const { return in_own_mounts(joined({runtime_}, words)); }
  void add(const std::string& name, const Words& program) const {
    const auto bundle = directory_.path() / name;
    std::filesystem::create_directories(bundle / "rootfs" / "usr");
    for (const char* place : {"proc", "dev", "tmp"}) {
      std::filesystem::create_directory(bundle / "rootfs" / place);
    }
    for (const char* link : {"bin", "lib", "lib64"}) {
      std::filesystem::create_symlink(std::string("usr/") + link, bundle / "rootfs" / link);
    }
    std::ofstream(bundle / "config.json") << bundle_config(program);
  }

  std::string runtime_;
  std::string id_ = "casemate-bench-" + random_hex(4);
  OwnDirectory directory_;
  bool running_ = false;
};

// -- docker
// ----------------------------------------------------------------------------------------

// An image with true and python3 in it, which nobody can be asked to fetch here.
constexpr char kImageVariable[] = "CASEMATE_BENCH_IMAGE";

class Container {
 public:
  explicit Container(std::string image) : image_(std::move(image)) {
    time_process({"docker", "run", "--detach", "--rm", "--network", "none", "--name", name_, image_,
                  "sleep", "infinity"});
    running_ = true;
  }
  ~Container() {
    try {
      if (running_) time_process({"docker", "rm", "--force", name_});
    } catch (const std::exception&) {
      // As above.
    }
  }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  Words run(const Words& program) const {
    return joined({"docker", "run", "--rm", "--network", "none", image_}, program);
  }
  Words exec(const Words& program) const { return joined({"docker", "exec", name_}, program); }

 private:
  std::string image_;
  std::string name_ = "casemate-bench-" + random_hex(4);
  bool running_ = false;
};

// -- All of them
// -----------------------------------------------------------------------------------

class Peers {
 public:
  void add_bwrap() {
    const std::string missing = find_program("bwrap").empty() ? "bwrap is not installed" : "";
    add("cold_true", "bwrap", bwrap(kTrue), nullptr, missing);
    add("warm_print", "bwrap", bwrap(kPrint), nullptr, missing);
  }

  void add_runtime(const std::string& name) {
    if (find_program(name).empty()) return skip(name, name + " is not installed");
    try {
      const auto bundles = std::make_shared<const Bundles>(name);
      add("cold_true", name, bundles->run("true"), bundles);
      add("warm_true", name + " exec", bundles->exec(kTrue), bundles);
      add("warm_print", name + " exec", bundles->exec(kPrint), bundles);
    } catch (const std::exception& failure) {
      skip(name, failure.what());
    }
  }

  void add_docker() {
    if (find_program("docker").empty()) return skip("docker", "docker is not installed");
    const char* image = std::getenv(kImageVariable);
    try {
      time_process({"docker", "version"});
    } catch (const std::exception&) {
      return skip("docker", "no docker engine answers");
    }
    if (image == nullptr) {
      return skip("docker", fmt::format("{} names no image with python3", kImageVariable));
    }
    try {
      const auto container = std::make_shared<const Container>(image);
      add("cold_true", "docker", container->run({"true"}), container);
      add("warm_true", "docker exec", container->exec({"true"}), container);
      add("warm_print", "docker exec", container->exec({"python3", "-c", "print(1)"}), container);
    } catch (const std::exception& failure) {
      skip("docker", failure.what());
    }
  }

  std::vector<Subject> take() { return std::move(subjects_); }

 private:
  void add(std::string work, std::string name, Words argv, std::shared_ptr<const void> kept,
           std::string skipped = {}) {
    Subject subject{.work = std::move(work), .name = std::move(name), .argv = argv};
    subject.once = [argv = std::move(argv), kept = std::move(kept)] { return time_process(argv); };
    subject.skipped = std::move(skipped);
    subjects_.push_back(std::move(subject));
  }
  void skip(const std::string& name, const std::string& reason) {
    add("cold_true", name, {}, nullptr, reason);
    add("warm_true", name + " exec", {}, nullptr, reason);
    add("warm_print", name + " exec", {}, nullptr, reason);
  }

  std::vector<Subject> subjects_;
};

}  // namespace

std::vector<Subject> peer_subjects() {
  sweep_own_directories(Bundles::end_left);
  Peers peers;
  peers.add_bwrap();
  peers.add_runtime("crun");
  peers.add_runtime("runc");
  peers.add_docker();
  return peers.take();
}

}  // namespace casemate::bench
