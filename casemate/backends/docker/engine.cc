#include "casemate/backends/docker/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <utility>

#include "casemate/backends/docker/engine_answer.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"

namespace casemate::docker {
namespace {

namespace json = boost::json;

// API 1.40 is of Docker 19.03, Podman 3 and newer; above the last one known here nothing is asked
// of an engine that it did not have then.
constexpr int kLeastMinor = 40;
constexpr int kMostMinor = 51;
constexpr std::chrono::seconds kHandshakePatience{10};
// So that a caller who gives up while a container is made can still remove it.
constexpr std::chrono::seconds kCreateGrace{5};
// From the end of a container's first process until Podman knows of it.
constexpr std::chrono::seconds kEndPatience{5};
// From when a name is taken until what has it can be seen, which takes as long as the container is
// made: by a host, too, that was killed meanwhile.
constexpr std::chrono::seconds kNamePatience{30};
constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{200};

// Between questions of which nobody tells when to ask them; each twice as long as the one before.
class Pauses {
 public:
  void take() {
    sys::poll_until({}, std::chrono::steady_clock::now() + next_);
    next_ = std::min(2 * next_, kLongestPause);
  }

 private:
  std::chrono::milliseconds next_ = kFirstPause;
};

// Of "1.41": 41; 0 for what is no version of the API 1.
int minor_of(std::string_view version) {
  if (!version.starts_with("1.")) return 0;
  version.remove_prefix(2);
  int minor = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), minor);
  return error == std::errc{} && end == version.data() + version.size() ? minor : 0;
}

}  // namespace

Engine::Engine(EngineAddress address, const EngineTls* tls, Log log)
    : client_(std::move(address), tls), log_(std::move(log)) {}

std::optional<EngineFacts> Engine::known_facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

EngineFacts Engine::facts(const CallControl& control) {
  if (auto known = known_facts()) return *known;
  EngineFacts found = negotiate(control);
  const std::lock_guard lock(mutex_);
  facts_ = found;
  return found;
}

EngineFacts Engine::negotiate(const CallControl& control) {
  const auto get = [&](std::string path) {
    const EngineReply reply = client_.send(
        {.method = "GET", .target = std::move(path), .silence = kHandshakePatience}, control);
    if (reply.status != 200) no_sense(fmt::format("status {}", reply.status));
    return parse(reply.body);
  };
  const json::object version = get("/version");
  const int newest = minor_of(text(version, "ApiVersion"));
  const int oldest = std::max(minor_of(text(version, "MinAPIVersion")), 0);
  if (newest < kLeastMinor || oldest > kMostMinor) {
    throw SandboxUnavailable(
        fmt::format("the engine speaks the versions {} to {} of its API; 1.{} to 1.{} are spoken "
                    "here",
                    escape_for_display(text(version, "MinAPIVersion")),
                    escape_for_display(text(version, "ApiVersion")), kLeastMinor, kMostMinor),
        "use Docker 19.03 or newer, or Podman 3 or newer");
  }
  EngineFacts facts;
  facts.version = fmt::format("1.{}", std::min(newest, kMostMinor));
  const json::value* components = version.if_contains("Components");
  if (components != nullptr && components->is_array()) {
    for (const json::value& each : components->as_array()) {
      if (!each.is_object()) continue;
      if (text(each.as_object(), "Name").starts_with("Podman")) facts.podman = true;
    }
  }
  facts.name = fmt::format("{} {}", facts.podman ? "podman" : "docker",
                           escape_for_display(text(version, "Version")));
  const json::object info = get("/v" + facts.version + "/info");
  const std::string os = text(info, "OSType");
  if (!os.empty() && os != "linux") {
    throw SandboxUnavailable(
        fmt::format("the engine runs containers of {}, not of Linux", escape_for_display(os)),
        "switch it to Linux containers");
  }
  facts.kernel = text(info, "KernelVersion");
  facts.architecture = text(info, "Architecture");
  facts.processors = number(info, "NCPU");
  facts.memory = number(info, "MemTotal");
  facts.bounds_memory = flag(info, "MemoryLimit");
  facts.bounds_processes = flag(info, "PidsLimit");
  facts.bounds_cpu = flag(info, "CpuCfsQuota") || flag(info, "CPUCfsQuota");
  for (const auto& [name, ignored] : inner(info, "Runtimes")) facts.runtimes.emplace(name);
  facts.identity = text(info, "Name") + " " + text(info, "DockerRootDir");
  // Podman's is another each time.
  if (!facts.podman) facts.identity += " " + text(info, "ID");
  return facts;
}

std::string Engine::target(const std::string& path, const CallControl& control) {
  return "/v" + facts(control).version + path;
}

EngineReply Engine::ask(std::string_view method, const std::string& path,
                        const CallControl& control, std::string body, std::chrono::seconds grace) {
  EngineReply reply = client_.send(
      {.method = method, .target = target(path, control), .body = std::move(body), .grace = grace},
      control);
  if (reply.status >= 400) {
    write_log(log_, LogLevel::debug,
              fmt::format("docker: {} {}: {} {}", method, path.substr(0, path.find('?')),
                          reply.status, escape_for_display(words_of(reply))));
  }
  return reply;
}

namespace {

// Podman's answer about a container whose first process has ended, until its monitor tells: "read
// /proc/7/cgroup: no such process".
bool is_ending(const EngineReply& reply) {
  return reply.status == 500 && words_of(reply).find("no such process") != std::string::npos;
}

}  // namespace

// By asking again: Podman tells nobody when it knows.
EngineReply Engine::ask_until_known(std::string_view method, const std::string& path,
                                    const CallControl& control) {
  const auto until = std::chrono::steady_clock::now() + kEndPatience;
  Pauses pauses;
  while (true) {
    EngineReply reply = ask(method, path, control);
    if (!is_ending(reply) || std::chrono::steady_clock::now() >= until) return reply;
    pauses.take();
  }
}

// -- Images --------------------------------------------------------------------------------------

std::optional<ImageFacts> Engine::image(const std::string& reference, const CallControl& control) {
  // Its slashes stand for themselves.
  const EngineReply reply = ask("GET", "/images/" + reference + "/json", control);
  if (reply.status == 404) return std::nullopt;
  expect(reply, {200});
  const json::object object = parse(reply.body);
  ImageFacts facts;
  facts.id = text(object, "Id");
  if (!facts.id.starts_with("sha256:")) facts.id = "sha256:" + facts.id;
  facts.platform = text(object, "Os") + "/" + text(object, "Architecture");
  const json::value* digests = object.if_contains("RepoDigests");
  if (digests != nullptr && digests->is_array()) {
    for (const json::value& each : digests->as_array()) {
      if (!each.is_string()) continue;
      const std::string named(each.as_string());
      facts.digests.insert(named.substr(named.find('@') + 1));
    }
  }
  const json::object& config = inner(object, "Config");
  const json::value* variables = config.if_contains("Env");
  if (variables != nullptr && variables->is_array()) {
    for (const json::value& each : variables->as_array()) {
      if (!each.is_string()) continue;
      const std::string line(each.as_string());
      const std::size_t equals = line.find('=');
      if (equals == 0 || equals == line.npos) continue;
      facts.environment[line.substr(0, equals)] = line.substr(equals + 1);
    }
  }
  facts.has_health_check = !inner(config, "Healthcheck").empty();
  for (const auto& [path, ignored] : inner(config, "Volumes")) {
    facts.volumes.emplace_back(path);
  }
  return facts;
}

void Engine::pull(const std::string& reference, const std::string& platform,
                  const std::function<void(std::string_view)>& progress,
                  std::chrono::seconds silence, const CallControl& control) {
  std::string path = "/images/create?fromImage=" + encode_for_target(reference);
  if (!platform.empty()) path += "&platform=" + encode_for_target(platform);
  std::string rest;
  std::string failure;
  // Of an answer that is a refusal: its message, or the line as it is.
  std::string words;
  std::string shown;
  const auto heed = [&](std::string_view line) {
    json::value value;
    try {
      value = parse_json(line, kAnswerBounds);
    } catch (const JsonError&) {
      words = line.substr(0, kMostWords);
      return;
    }
    if (!value.is_object()) return;
    const json::object& said = value.as_object();
    if (std::string error = text(said, "error"); !error.empty()) failure = std::move(error);
    if (std::string message = text(said, "message"); !message.empty()) words = std::move(message);
    // The layers' own steps come by the thousand; a step that begins is news.
    const std::string now = fmt::format("{} {}", text(said, "status"), text(said, "id"));
    if (now == shown || text(said, "status").empty()) return;
    shown = now;
    if (progress)
      progress("pulling " + escape_for_display(reference) + ": " + escape_for_display(now));
  };
  EngineRequest request{.method = "POST", .target = target(path, control), .silence = silence};
  request.on_body = [&](std::string_view bytes) {
    rest += bytes;
    std::size_t end = 0;
    while ((end = rest.find('\n')) != rest.npos) {
      heed(std::string_view(rest).substr(0, end));
      rest.erase(0, end + 1);
    }
    if (rest.size() > kAnswerBounds.max_bytes) no_sense("a line without an end");
  };
  const EngineReply reply = client_.send(request, control);
  if (!rest.empty()) heed(rest);
  if (reply.status != 200) {
    throw EngineRefused(reply.status, failure.empty() ? words : failure);
  }
  if (!failure.empty()) throw EngineRefused(reply.status, failure);
}

// -- Containers ----------------------------------------------------------------------------------

namespace {

bool is_taken(const EngineReply& reply) {
  // Podman says so of a name that is in use.
  return reply.status == 409 ||
         (reply.status == 500 && words_of(reply).find("already in use") != std::string::npos);
}

}  // namespace

std::optional<std::string> Engine::create(const std::string& name, const std::string& body,
                                          const CallControl& control) {
  const auto until = std::chrono::steady_clock::now() + kNamePatience;
  Pauses pauses;
  while (true) {
    const EngineReply reply = ask("POST", "/containers/create?name=" + encode_for_target(name),
                                  control, body, kCreateGrace);
    if (!is_taken(reply)) {
      expect(reply, {200, 201});
      std::string id = text(parse(reply.body), "Id");
      if (id.empty()) no_sense("a container without an id");
      return id;
    }
    if (inspect(name, control) || std::chrono::steady_clock::now() >= until) return std::nullopt;
    // By asking again: of one that is being made nobody is told.
    pauses.take();
  }
}

void Engine::start(const std::string& id, const CallControl& control) {
  expect(ask("POST", "/containers/" + id + "/start", control), {204, 304});
}

EngineClient::Pending Engine::begin_waiting(const std::string& id, std::string_view condition) {
  return client_.begin(
      {.method = "POST",
       .target = target(fmt::format("/containers/{}/wait?condition={}", id, condition), {})});
}

std::optional<AttachedStream> Engine::exec(const std::string& id,
                                           const std::vector<std::string>& words,
                                           const CallControl& control) {
  json::array program;
  for (const std::string& word : words) program.emplace_back(word);
  const EngineReply made = ask("POST", "/containers/" + id + "/exec", control,
                               serialise_json(json::object{{"AttachStdin", true},
                                                           {"AttachStdout", true},
                                                           {"AttachStderr", true},
                                                           {"Tty", false},
                                                           {"User", "0:0"},
                                                           {"Cmd", std::move(program)}}));
  // Of one that is not there, has ended or is paused, engines answer 404, 409 or, Docker from its
  // start on and Podman now and then, 500; so what it is now decides what was meant.
  const auto refuse = [&](const EngineReply& reply) {
    const auto found = inspect(id, control);
    if (found && found->state == "running") throw EngineRefused(reply.status, words_of(reply));
  };
  if (made.status >= 400) {
    refuse(made);
    return std::nullopt;
  }
  expect(made, {200, 201});
  std::optional<EngineClient::Pending> end;
  if (address().kind == EngineAddress::Kind::unix_socket) end = begin_waiting(id, "not-running");
  EngineReply reply;
  auto stream =
      client_.attach({.method = "POST",
                      .target = target("/exec/" + text(parse(made.body), "Id") + "/start", control),
                      .body = serialise_json(json::object{{"Detach", false}, {"Tty", false}})},
                     std::move(end), reply, log_, control);
  if (!stream) refuse(reply);
  return stream;
}

namespace {

std::string state_of(std::string state) {
  if (state == "configured" || state == "initialized") return "created";
  if (state == "stopped" || state == "stopping") return "exited";
  return state;
}

// Podman says so, with another status, of one that goes in this moment.
bool is_gone(const EngineReply& reply) {
  return reply.status == 404 ||
         (reply.status == 500 && words_of(reply).find("no such container") != std::string::npos);
}

}  // namespace

std::optional<Container> Engine::inspect(const std::string& id, const CallControl& control) {
  const EngineReply reply = ask_until_known("GET", "/containers/" + id + "/json", control);
  if (is_gone(reply)) return std::nullopt;
  expect(reply, {200});
  const json::object object = parse(reply.body);
  const json::object& state = inner(object, "State");
  std::string name = text(object, "Name");
  if (name.starts_with('/')) name.erase(0, 1);
  return Container{
      .id = text(object, "Id"),
      .name = std::move(name),
      .state = state_of(text(state, "Status")),
      .labels = texts(inner(inner(object, "Config"), "Labels")),
      .process = static_cast<int>(std::min<std::uint64_t>(number(state, "Pid"), 1U << 30U))};
}

std::vector<Container> Engine::list(const std::vector<std::string>& labels,
                                    const CallControl& control) {
  const EngineReply reply =
      ask_until_known("GET", "/containers/json?all=1&" + filters("label", labels), control);
  expect(reply, {200});
  std::vector<Container> found;
  for (const json::value& each : parse_array(reply.body)) {
    if (!each.is_object()) continue;
    const json::object& object = each.as_object();
    std::string name;
    const json::value* names = object.if_contains("Names");
    if (names != nullptr && names->is_array() && !names->as_array().empty() &&
        names->as_array().front().is_string()) {
      name = std::string(names->as_array().front().as_string());
      if (name.starts_with('/')) name.erase(0, 1);
    }
    found.push_back({.id = text(object, "Id"),
                     .name = std::move(name),
                     .state = state_of(text(object, "State")),
                     .labels = texts(inner(object, "Labels"))});
  }
  return found;
}

Engine::Usage Engine::usage(const std::string& id, const CallControl& control) {
  const EngineReply reply =
      ask("GET", "/containers/" + id + "/stats?stream=false&one-shot=true", control);
  if (reply.status != 200) return {};
  const json::object object = parse(reply.body);
  return {.processes = number(inner(object, "pids_stats"), "current"),
          .memory_bytes = number(inner(object, "memory_stats"), "usage")};
}

bool Engine::remove(const std::string& id, const CallControl& control) {
  const EngineReply reply =
      ask_until_known("DELETE", "/containers/" + id + "?force=1&v=1", control);
  if (is_gone(reply)) return false;
  if (reply.status == 409) {
    // Somebody, or the engine after the container's end, is at it.
    const EngineReply waited =
        ask("POST", "/containers/" + id + "/wait?condition=removed", control);
    expect(waited, {200, 404});
    return true;
  }
  expect(reply, {200, 204});
  return true;
}

void Engine::put_archive(const std::string& id, const std::string& directory, std::string tar,
                         const CallControl& control) {
  const EngineReply reply = client_.send(
      {.method = "PUT",
       .target =
           target("/containers/" + id + "/archive?path=" + encode_for_target(directory), control),
       .body = std::move(tar),
       .content_type = "application/x-tar"},
      control);
  expect(reply, {200});
}

// -- Volumes -------------------------------------------------------------------------------------

bool Engine::volume_is_there(const std::string& name, const CallControl& control) {
  const EngineReply reply = ask("GET", "/volumes/" + name, control);
  if (reply.status == 404) return false;
  expect(reply, {200});
  return true;
}

void Engine::make_volume(const std::string& name, const std::map<std::string, std::string>& labels,
                         const CallControl& control) {
  json::object all;
  for (const auto& [label, value] : labels) all[label] = value;
  expect(ask("POST", "/volumes/create", control,
             serialise_json(json::object{{"Name", name}, {"Labels", std::move(all)}})),
         {200, 201});
}

std::vector<std::string> Engine::list_volumes(const std::string& label,
                                              const CallControl& control) {
  const EngineReply reply = ask("GET", "/volumes?" + filters("label", {label}), control);
  expect(reply, {200});
  std::vector<std::string> names;
  const json::object object = parse(reply.body);
  const json::value* volumes = object.if_contains("Volumes");
  if (volumes == nullptr || !volumes->is_array()) return names;
  for (const json::value& each : volumes->as_array()) {
    if (each.is_object()) names.push_back(text(each.as_object(), "Name"));
  }
  return names;
}

bool Engine::remove_volume(const std::string& name, const CallControl& control) {
  const EngineReply reply = ask("DELETE", "/volumes/" + name, control);
  if (reply.status == 404 || reply.status == 409) return false;
  // Podman says so of one that is in use.
  if (reply.status == 500 && words_of(reply).find("in use") != std::string::npos) return false;
  expect(reply, {200, 204});
  return true;
}

}  // namespace casemate::docker
