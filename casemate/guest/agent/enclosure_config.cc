#include "casemate/guest/agent/enclosure_config.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace casemate::guest {
namespace {

// Users, groups and namespaces of calls, ending what they started, removing what they made, and
// letting go of these very rights. All of them over the container's own kernel only.
constexpr std::string_view kCapabilities[] = {"CAP_CHOWN",   "CAP_DAC_OVERRIDE", "CAP_FOWNER",
                                              "CAP_KILL",    "CAP_SETGID",       "CAP_SETUID",
                                              "CAP_SETPCAP", "CAP_SYS_ADMIN"};
constexpr std::string_view kNamespaces[] = {"mount", "pid", "network", "ipc", "uts"};

constexpr std::string_view kProgram = "/casemate/guest";

// A JSON string. What is in it was checked to be a path; the rest is escaped all the same.
std::string quoted(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += byte;
    } else if (value < 0x20) {
      out += "\\u00";
      out += kDigits[value >> 4];
      out += kDigits[value & 15];
    } else {
      out += byte;
    }
  }
  return out += '"';
}

std::string quoted_list(const auto& words, std::string_view before = "",
                        std::string_view after = "") {
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list += ",";
    list.append(before).append(quoted(word)).append(after);
  }
  return list;
}

struct Tmpfs {
  std::string path;
  std::uint64_t bytes;
  std::string_view mode;
  bool executable;
};

std::string bind_entry(std::string_view path, std::string_view source) {
  return R"({"type":"bind","destination":)" + quoted(path) + R"(,"source":)" + quoted(source) +
         R"(,"options":["bind","ro","nosuid","nodev"]})";
}

std::string mount_entry(const Tmpfs& tmpfs) {
  return R"(,{"type":"tmpfs","source":"tmpfs","destination":)" + quoted(tmpfs.path) +
         R"(,"options":["nosuid","nodev",)" + (tmpfs.executable ? "" : R"("noexec",)") +
         R"("mode=)" + std::string(tmpfs.mode) + R"(","size=)" + std::to_string(tmpfs.bytes) +
         R"("]})";
}

}  // namespace

std::string enclosure_config(const CreateSandbox& request, const EnclosedPlan& plan,
                             const EnclosureFiles& files) {
  const std::uint64_t part = request.disk_bytes / 16;
  const Tmpfs shares[] = {
      // Each call has its own over both of these.
      {"/tmp", 1024 * 1024, "0755", false},
      {"/home/user", 2 * part, "0755", true},
      {"/dev/shm", 1024 * 1024, "0755", false},
      {plan.work_dir, request.disk_bytes - 2 * part, "1777", true},
      // Of ours: the sockets of calls.
      {"/casemate/calls", 1024 * 1024, "0711", false},
  };
  const std::string capabilities = "[" + quoted_list(kCapabilities) + "]";
  std::vector<std::string> words = encode(plan);
  words.insert(words.begin(), std::string(kProgram));
  std::string config = R"({"ociVersion":"1.0.0","hostname":"sandbox","process":{)"
                       R"("terminal":false,"user":{"uid":0,"gid":0},"cwd":"/","env":[],"args":[)";
  config += quoted_list(words) + R"(],"noNewPrivileges":true,"capabilities":{"bounding":)" +
            capabilities + R"(,"effective":)" + capabilities + R"(,"permitted":)" + capabilities +
            R"(}},"root":{"path":)" + quoted(files.root) +
            R"(,"readonly":true},"mounts":[)"
            R"({"type":"proc","source":"proc","destination":"/proc"},)"
            R"({"type":"cgroup","source":"cgroup","destination":"/sys/fs/cgroup/pids",)"
            R"("options":["pids"]},)" +
            bind_entry(kProgram, files.program) + "," +
            bind_entry("/etc/machine-id", files.machine_id);
  for (const Tmpfs& share : shares) config += mount_entry(share);
  return config + R"(],"linux":{"namespaces":[)" + quoted_list(kNamespaces, "{\"type\":", "}") +
         "]}}\n";
}

}  // namespace casemate::guest
