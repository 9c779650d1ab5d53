#include "casemate/guest/agent/container_config.h"

#include <cstdint>

#include "casemate/guest/agent/rootfs.h"

namespace casemate::guest {
namespace {

// Each with what it is for.
constexpr std::string_view kCapabilities[] = {
    "CAP_CHOWN",             // a call's directories and pipes are given to the program's user
    "CAP_DAC_OVERRIDE",      // they are removed whatever modes a program gave them
    "CAP_FOWNER",            // the same
    "CAP_KILL",              // of programs, which have another user
    "CAP_SETGID",            // programs get theirs
    "CAP_SETUID",            // the same
    "CAP_SETPCAP",           // the bounding set is emptied
    "CAP_NET_ADMIN",         // loopback of the sandbox, and of a call
    "CAP_NET_BIND_SERVICE",  // doors listen at the ports of those who they stand for
    "CAP_SYS_ADMIN",         // namespaces and mounts of calls
    "CAP_SYS_RESOURCE",      // what the sandbox may take of inotify is bounded
};

// As in the template.
constexpr std::string_view kDevices[] = {"null", "zero", "full", "random", "urandom"};

constexpr std::string_view kNamespaces[] = {"user", "mount", "pid",   "network",
                                            "ipc",  "uts",   "cgroup"};

std::string quoted_list(std::string_view before, auto& words, std::string_view after) {
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list += ",";
    list.append(before).append("\"").append(word).append("\"").append(after);
  }
  return list;
}

std::string mapping(std::uint32_t first) {
  const auto entry = [](std::uint32_t inside, std::uint32_t outside) {
    return "{\"containerID\":" + std::to_string(inside) + ",\"hostID\":" + std::to_string(outside) +
           ",\"size\":1}";
  };
  return "[" + entry(0, first) + "," + entry(kUserId, first + 1) + "]";
}

}  // namespace

// Nothing in it comes from anywhere but here, so that nothing needs escaping.
std::string container_config(const SandboxIds& ids, std::string_view groups_path,
                             TemplateDevices devices) {
  const std::string capabilities = "[" + quoted_list("", kCapabilities, "") + "]";
  std::string config = R"({"ociVersion":"1.0.0","hostname":"sandbox","process":{)"
                       R"("terminal":false,"user":{"uid":0,"gid":0},"cwd":"/","env":[],)"
                       R"("args":["/proc/self/fd/)";
  config += std::to_string(kContainerProgram) + R"(","agent"],"noNewPrivileges":true,)";
  config += R"("capabilities":{"bounding":)" + capabilities + R"(,"effective":)" + capabilities +
            R"(,"permitted":)" + capabilities + "}},";
  config += R"("root":{"path":")" + std::string(kContainerTemplate) + R"(","readonly":true},)";
  // With a /dev that is bound, runtimes make no devices of their own in it: the template has them.
  config += R"("mounts":[{"destination":"/proc","type":"proc","source":"proc",)"
            R"("options":["nosuid","nodev","noexec"]},)"
            R"({"destination":"/dev","type":"bind","source":")";
  config +=
      std::string(kContainerTemplate) + R"(/dev","options":["rbind","ro","nosuid","noexec"]})";
  if (devices == TemplateDevices::views) {
    for (const std::string_view name : kDevices) {
      const std::string path = "/dev/" + std::string(name);
      config += R"(,{"destination":")" + path + R"(","type":"bind","source":")" + path +
                R"(","options":["bind","ro","nosuid","noexec"]})";
    }
  }
  config += "],";
  config += R"("linux":{"uidMappings":)" + mapping(*ids.first_user) + R"(,"gidMappings":)" +
            mapping(*ids.first_group) + R"(,"namespaces":[)" +
            quoted_list("{\"type\":", kNamespaces, "}") + "]";
  if (!groups_path.empty()) config += R"(,"cgroupsPath":")" + std::string(groups_path) + "\"";
  return config + "}}\n";
}

}  // namespace casemate::guest
