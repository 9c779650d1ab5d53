#pragma once

// What this backend asks of an engine, request by request, as Docker's Engine API and Podman's
// compatible service have it.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/backends/docker/engine_client.h"
#include "casemate/base/log.h"

namespace casemate::docker {

// What an engine is and can.
struct EngineFacts {
  // "docker 20.10.24" or "podman 4.3.1".
  std::string name{};
  bool podman = false;
  // Of the API, as it is spoken with it: "1.41".
  std::string version{};
  std::string kernel{};
  std::string architecture{};
  std::uint64_t processors = 0;
  std::uint64_t memory = 0;
  bool bounds_memory = false;
  bool bounds_processes = false;
  bool bounds_cpu = false;
  std::set<std::string> runtimes{};
  // Which engine it is, whatever address leads to it.
  std::string identity{};
};

struct ImageFacts {
  // "sha256:..."
  std::string id{};
  std::set<std::string> digests{};
  // "linux/amd64"
  std::string platform{};
  std::map<std::string, std::string> environment{};
  // Where the image wants volumes.
  std::vector<std::string> volumes{};
  // Programs of its own that the engine would run now and then.
  bool has_health_check = false;
};

struct Container {
  std::string id{};
  std::string name{};
  // created, running, paused, restarting, removing, exited, dead; Podman's "configured" and
  // "initialized" are read as created, its "stopped" as exited.
  std::string state{};
  std::map<std::string, std::string> labels{};
  // Of its first process where the engine runs; 0 where there is none.
  int process = 0;
  bool is_live() const { return state == "running" || state == "paused"; }
};

// An engine said no, in words of its own: for the log. The caller makes a named refusal of it.
class EngineRefused : public std::runtime_error {
 public:
  EngineRefused(unsigned status, const std::string& words)
      : std::runtime_error(words), status_(status) {}
  unsigned status() const { return status_; }

 private:
  unsigned status_;
};

// Thread-safe. Every method throws as `EngineClient::send`, and `EngineRefused` for an answer that
// is neither success nor what it says below.
class Engine {
 public:
  Engine(EngineAddress address, const EngineTls* tls, Log log);

  const EngineAddress& address() const { return client_.address(); }

  // Asked once, and kept. Throws `SandboxUnavailable` for an engine that speaks no version that is
  // spoken here, or has no Linux containers.
  EngineFacts facts(const CallControl& control);
  // Nothing before `facts` succeeded once.
  std::optional<EngineFacts> known_facts() const;

  // Absent: it is not there.
  std::optional<ImageFacts> image(const std::string& reference, const CallControl& control);
  // `progress` gets a line for people now and then. Throws `EngineRefused` with the engine's words.
  void pull(const std::string& reference, const std::string& platform,
            const std::function<void(std::string_view)>& progress, std::chrono::seconds silence,
            const CallControl& control);

  // The id; absent: the name is taken, by what can be seen as a rule. `body` is JSON. A caller who
  // stops or whose deadline comes meanwhile gets the answer all the same when it comes within 5 s.
  std::optional<std::string> create(const std::string& name, const std::string& body,
                                    const CallControl& control);
  void start(const std::string& id, const CallControl& control);
  // Has an answer once the container has ended; "next-exit" for one that is not started yet, and
  // "not-running" for one that was. Over a Unix socket.
  EngineClient::Pending begin_waiting(const std::string& id, std::string_view condition);
  // Runs a program beside the container's first process, as user 0, and gives its standard streams.
  // Absent: the container is not there, or does not run.
  std::optional<AttachedStream> exec(const std::string& id, const std::vector<std::string>& words,
                                     const CallControl& control);
  // By id or name; absent: there is none.
  std::optional<Container> inspect(const std::string& id, const CallControl& control);
  // What a running one uses now; nothing where the engine does not say.
  struct Usage {
    std::uint64_t processes = 0;
    std::uint64_t memory_bytes = 0;
  };
  Usage usage(const std::string& id, const CallControl& control);
  // All that carry those labels, "name=value".
  std::vector<Container> list(const std::vector<std::string>& labels, const CallControl& control);
  // Kills it and removes it with its unnamed volumes, and waits until it is gone. False: it was
  // not there.
  bool remove(const std::string& id, const CallControl& control);

  bool volume_is_there(const std::string& name, const CallControl& control);
  void make_volume(const std::string& name, const std::map<std::string, std::string>& labels,
                   const CallControl& control);
  // Names of the volumes that carry that label.
  std::vector<std::string> list_volumes(const std::string& label, const CallControl& control);
  // False: it is in use, or was not there.
  bool remove_volume(const std::string& name, const CallControl& control);
  // Unpacks a tar archive in a directory of a container.
  void put_archive(const std::string& id, const std::string& directory, std::string tar,
                   const CallControl& control);

 private:
  EngineReply ask(std::string_view method, const std::string& path, const CallControl& control,
                  std::string body = {}, std::chrono::seconds grace = {});
  // Of what may be asked twice, about containers that may end meanwhile.
  EngineReply ask_until_known(std::string_view method, const std::string& path,
                              const CallControl& control);
  std::string target(const std::string& path, const CallControl& control);
  EngineFacts negotiate(const CallControl& control);

  EngineClient client_;
  Log log_;
  mutable std::mutex mutex_;
  std::optional<EngineFacts> facts_;
};

}  // namespace casemate::docker
