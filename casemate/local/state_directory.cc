#include "casemate/local/state_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/json.h"
#include "casemate/base/shell_word.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/keeper_client.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"

namespace casemate::local {

using sys::UniqueFd;

namespace json = boost::json;

namespace {

json::array names_of(const std::set<Limit>& limits) {
  json::array names;
  for (const Limit limit : limits) names.push_back(json::value(json::string(to_string(limit))));
  return names;
}

// What a host chose may be any bytes, and comes back as the very same: JSON holds UTF-8 only, so
// other text is written as {"hex": "..."}.
json::value text_value(const std::string& text) {
  if (is_valid_utf8(text)) return json::value(json::string(text));
  std::string digits;
  for (const char byte : text) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return json::object{{"hex", std::move(digits)}};
}

std::string text_of(const json::value& value) {
  if (const auto* text = value.if_string()) return std::string(*text);
  const json::string& digits = value.as_object().at("hex").as_string();
  if (digits.size() % 2 != 0) throw JsonError("an odd number of hex digits");
  std::string text;
  for (std::size_t at = 0; at < digits.size(); at += 2) {
    std::uint8_t byte = 0;
    const char* const end = digits.data() + at + 2;
    const auto [stopped, error] = std::from_chars(digits.data() + at, end, byte, 16);
    if (error != std::errc{} || stopped != end) throw JsonError("not hex digits");
    text += static_cast<char>(byte);
  }
  return text;
}

}  // namespace

namespace {

constexpr std::uint64_t kRecordVersion = 1;

json::value encode_place(const std::optional<ControllerPlace>& place) {
  if (!place) return nullptr;
  return json::object{{"base", text_value(place->base)}, {"unified", place->unified}};
}

std::optional<ControllerPlace> decode_place(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  const json::object& object = value.as_object();
  return ControllerPlace{text_of(object.at("base")), object.at("unified").as_bool()};
}

json::object encode_layout(const ControlGroupLayout& layout) {
  return {{"memory", encode_place(layout.memory)},
          {"pids", encode_place(layout.pids)},
          {"cpu", encode_place(layout.cpu)},
          {"accounting", encode_place(layout.accounting)}};
}

ControlGroupLayout decode_layout(const json::object& object) {
  return {.memory = decode_place(object.at("memory")),
          .pids = decode_place(object.at("pids")),
          .cpu = decode_place(object.at("cpu")),
          .accounting = decode_place(object.at("accounting"))};
}

}  // namespace

std::string encode_record(const Record& record) {
  json::array labels;
  for (const auto& [name, value] : record.labels) {
    labels.push_back(json::array{text_value(name), text_value(value)});
  }
  json::array environment;
  for (const auto& [name, value] : record.environment) {
    environment.push_back(json::array{text_value(name), text_value(value)});
  }
  json::array egress_allow;
  for (const HostPattern& entry : record.egress_allow) egress_allow.emplace_back(entry.text());
  return serialise_json(json::object{{"version", kRecordVersion},
                                     {"id", record.id},
                                     {"scope", text_value(record.key.scope)},
                                     {"thread_id", text_value(record.key.thread_id)},
                                     {"agent_dir", text_value(record.key.agent_dir)},
                                     {"kind", text_value(record.kind)},
                                     {"fingerprint", record.fingerprint},
                                     {"image", text_value(record.image)},
                                     {"work_dir", text_value(record.work_dir)},
                                     {"isolation", to_string(record.isolation)},
                                     {"created", record.created},
                                     {"environment", std::move(environment)},
                                     {"labels", std::move(labels)},
                                     {"egress", to_string(record.egress)},
                                     {"egress_allow", std::move(egress_allow)},
                                     {"limits_not_held", names_of(record.limits_not_held)},
                                     {"groups", encode_layout(record.groups)},
                                     {"ungrouped", names_of(record.ungrouped)},
                                     {"pids", record.pids},
                                     {"cpu_seconds", record.cpu_seconds},
                                     {"cpu_millis", record.cpu_millis},
                                     {"disk_bytes", record.disk_bytes},
                                     {"disk_inodes", record.disk_inodes},

                                     {"enclosed", record.enclosed}});
}

namespace {

std::set<Limit> limits_of(const json::value& value) {
  std::set<Limit> limits;
  for (const auto& limit : value.as_array()) {
    limits.insert(parse_limit(std::string(limit.as_string())));
  }
  return limits;
}

std::map<std::string, std::string> pairs_of(const json::value& value) {
  std::map<std::string, std::string> pairs;
  for (const auto& pair : value.as_array()) {
    pairs.emplace(text_of(pair.at(0)), text_of(pair.at(1)));
  }
  return pairs;
}

Egress egress_of(const json::value& value) { return parse_egress(text_of(value)); }

std::vector<HostPattern> patterns_of(const json::value& value) {
  std::vector<HostPattern> patterns;
  for (const auto& entry : value.as_array()) patterns.push_back(HostPattern::parse(text_of(entry)));
  return patterns;
}

std::uint64_t number_of(const json::value& value) { return value.to_number<std::uint64_t>(); }

// Directories are called by it.
bool is_usable_id(const std::string& id) {
  return !id.empty() && id != "." && id != ".." &&
         id.find_first_of(std::string_view("/\0", 2)) == id.npos;
}

}  // namespace

std::optional<Record> decode_record(std::string_view text) {
  try {
    const json::value value = parse_json(text);
    const json::object& object = value.as_object();
    Record record;
    record.id = text_of(object.at("id"));
    if (!is_usable_id(record.id)) return std::nullopt;
    record.key = {text_of(object.at("scope")), text_of(object.at("thread_id")),
                  text_of(object.at("agent_dir"))};
    record.kind = text_of(object.at("kind"));
    bool whole = true;
    const auto read = [&](const char* name, auto& field, const auto& as) {
      try {
        field = as(object.at(name));
      } catch (const std::exception&) {
        whole = false;
      }
    };
    std::uint64_t version = 0;
    read("version", version, number_of);
    read("fingerprint", record.fingerprint, text_of);
    read("image", record.image, text_of);
    read("environment", record.environment, pairs_of);
    read("work_dir", record.work_dir, text_of);
    read("isolation", record.isolation,
         [](const json::value& rung) { return parse_isolation(text_of(rung)); });
    read("created", record.created, number_of);
    read("labels", record.labels, pairs_of);
    read("egress", record.egress, egress_of);
    read("egress_allow", record.egress_allow, patterns_of);
    read("limits_not_held", record.limits_not_held, limits_of);
    read("groups", record.groups,
         [](const json::value& groups) { return decode_layout(groups.as_object()); });
    read("ungrouped", record.ungrouped, limits_of);
    read("pids", record.pids, number_of);
    read("cpu_seconds", record.cpu_seconds, number_of);
    read("cpu_millis", record.cpu_millis, number_of);
    read("disk_bytes", record.disk_bytes, number_of);
    read("disk_inodes", record.disk_inodes, number_of);
    read("enclosed", record.enclosed, [](const json::value& bit) { return bit.as_bool(); });
    if (!whole || version != kRecordVersion) record.fingerprint.clear();
    return record;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

FileLock::FileLock(UniqueFd file) : file_(std::move(file)), owner_(getpid()) {}
FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)), owner_(other.owner_) {}
FileLock::~FileLock() {
  // In a forked child the lock is the parent's.
  if (file_ && owner_ == getpid()) flock(file_.get(), LOCK_UN);
}

bool FileLock::file_is_there() const noexcept {
  struct stat status{};
  return fstat(file_.get(), &status) == 0 && status.st_nlink > 0;
}

namespace {

UniqueFd open_lock(int directory, const std::string& name) {
  return sys::open_at(directory, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

bool try_lock(int file, FileLock::Kind kind) {
  const int operation = kind == FileLock::Kind::shared ? LOCK_SH : LOCK_EX;
  if (flock(file, operation | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK && errno != EINTR) sys::throw_errno("locking");
  return false;
}

}  // namespace

FileLock FileLock::wait(int directory, const std::string& name, Kind kind,
                        const CallControl& control, std::string_view what) {
  UniqueFd file = open_lock(directory, name);
  // The kernel has no lock that waits with a bound and without signals. What is waited for takes
  // another process a few milliseconds, so asking again, ever less often, is cheap.
  std::chrono::milliseconds pause{1};
  while (!try_lock(file.get(), kind)) {
    if (control.stop.stop_requested()) {
      throw SandboxCancelled(fmt::format("cancelled while waiting for {}", what));
    }
    const auto now = std::chrono::steady_clock::now();
    if (control.deadline && now >= *control.deadline) {
      throw SandboxTimeout(fmt::format("the deadline came while waiting for {}", what),
                           "another process holds it; see which with fuser on the lock file");
    }
    auto until = now + pause;
    if (control.deadline) until = std::min(until, *control.deadline);
    sys::poll_until({}, until);
    pause = std::min(pause * 2, std::chrono::milliseconds{20});
  }
  return FileLock(std::move(file));
}

std::optional<FileLock> FileLock::attempt(int directory, const std::string& name, Kind kind) {
  return attempt(open_lock(directory, name), kind);
}

std::optional<FileLock> FileLock::attempt(UniqueFd file, Kind kind) {
  if (!try_lock(file.get(), kind)) return std::nullopt;
  return FileLock(std::move(file));
}

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& hint,
                         const std::string& command) {
  throw Carrying<SandboxUnavailable, StateRemedy>(SandboxUnavailable(what, hint),
                                                  {{.hint = hint, .command = command}});
}

constexpr char kChooseAnother[] = "choose another (the backend's option state_dir)";

[[noreturn]] void refuse_owner_or_mode(const std::string& shown, const struct stat& status) {
  const bool ours = status.st_uid == geteuid();
  refuse(fmt::format("the state directory {} belongs to user {} with mode {:o}; only a "
                     "directory of this user's with mode 700 is accepted",
                     shown, status.st_uid, status.st_mode & 07777),
         ours ? "take the rights of others from it (chmod 700), or choose another "
                "(the backend's option state_dir)"
              : kChooseAnother,
         ours ? "chmod 700 " + shell_word(shown) : "");
}

}  // namespace

UniqueFd open_private(int parent, const std::string& path, const std::string& shown) {
  try {
    sys::make_directory_at(parent, path.c_str(), 0700);
    UniqueFd directory = sys::open_at(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct stat status{};
    if (fstat(directory.get(), &status) < 0) sys::throw_errno("looking at " + shown);
    if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
      refuse_owner_or_mode(shown, status);
    }
    return directory;
  } catch (const std::system_error& error) {
    const int value = error.code().value();
    std::string hint = provider_hint(error);
    if (hint.empty()) hint = kChooseAnother;
    std::string command;
    if (value == EACCES || value == EPERM) {
      // One that is there is never given to this user: it may be another's, in use.
      struct stat status{};
      if (fstatat(parent, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(status.st_mode)) refuse_owner_or_mode(shown, status);
      } else if (errno == ENOENT) {
        command = fmt::format("install -d -m 700 -o {} -g {} {}", geteuid(), getegid(),
                              shell_word(shown));
        hint += "; or as root: " + command;
      }
    }
    refuse(fmt::format("the state directory {}: {}", shown, error.what()), hint, command);
  }
}

namespace {

bool is_private_directory_of(uid_t user, const std::string& path) {
  struct stat status{};
  return path.starts_with('/') && lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == user && (status.st_mode & 077) == 0;
}

}  // namespace

bool is_busy(int directory) try {
  return !FileLock::attempt(directory, guest::kBusyLockName, FileLock::Kind::exclusive);
} catch (const std::system_error&) {
  return false;  // it was disposed
}

std::optional<FileLock> lock_idle(int directory) try {
  CallControl patience;
  patience.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  return FileLock::wait(directory, guest::kBusyLockName, FileLock::Kind::exclusive, patience,
                        "the sandbox");
} catch (const SandboxTimeout&) {
  return std::nullopt;
}

std::string default_state_directory(uid_t user, const char* runtime_dir) {
  if (user == 0) return "/run/casemate";
  // The second for what runs without a login's environment, which has to find the same sandboxes.
  for (const std::string& candidate : {std::string(runtime_dir == nullptr ? "" : runtime_dir),
                                       fmt::format("/run/user/{}", user)}) {
    if (is_private_directory_of(user, candidate)) return candidate + "/casemate";
  }
  return fmt::format("/tmp/casemate-{}", user);
}

StateDirectory::StateDirectory(const std::string& path) : path_(path) {
  root_ = open_private(AT_FDCWD, path, path);
  const auto open_below = [&](const char* name) {
    return open_private(root_.get(), name, path + "/" + name);
  };
  new_ = open_below("new");
  sandboxes_ = open_below(guest::kPublishedName);
  trash_ = open_below("trash");
  locks_ = open_below("locks");
  snapshots_ = open_below("snapshots");
}

bool StateDirectory::is_there() const noexcept {
  for (const UniqueFd* directory : {&root_, &new_, &sandboxes_, &trash_, &locks_, &snapshots_}) {
    struct stat status{};
    if (fstat(directory->get(), &status) < 0 || status.st_nlink == 0) return false;
  }
  return true;
}

namespace {

constexpr std::size_t kConversationDigits = 8;
constexpr std::size_t kNameDigits = 32;

}  // namespace

std::string conversation_digits(std::string_view scope, std::string_view thread_id) {
  return sha256_hex(fmt::format("{}:{}{}:{}", scope.size(), scope, thread_id.size(), thread_id))
      .substr(0, kConversationDigits);
}

std::string sandbox_name(const SandboxKey& key, std::string_view kind) {
  return conversation_digits(key.scope, key.thread_id) + identity_digest(key, kind);
}

bool may_be_of(std::string_view conversation, std::string_view name) {
  return name.size() != kNameDigits || name.starts_with(conversation);
}

std::string lock_name(std::string_view name) {
  // Of the identity's own digits, which all names of it have.
  if (name.size() == kNameDigits) name.remove_prefix(kConversationDigits);
  return std::string(name.substr(0, kLockDigits)) + ".lock";
}

std::string new_sandbox_id() { return random_hex(8); }

UniqueFd open_sandbox(int parent, const std::string& name) {
  return UniqueFd(openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

Record read_record(int directory, const std::string& name) {
  std::optional<Record> record;
  try {
    const auto text = sys::read_file_if_there(directory, guest::kRecordName, 1 << 20);
    if (text) record = decode_record(*text);
  } catch (const std::system_error&) {
    // As one that is not there.
  }
  if (record) return std::move(*record);
  Record unknown;
  unknown.id = name;
  return unknown;
}

void write_record(int directory, const Record& record) {
  sys::write_file_at(directory, guest::kNextRecordName, encode_record(record), 0600);
  if (renameat(directory, guest::kNextRecordName, directory, guest::kRecordName) < 0) {
    sys::throw_errno("writing a sandbox's record");
  }
}

std::optional<UniqueFd> connect_to(int directory, const char* name) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) sys::throw_errno("making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Through /proc: a socket address holds 107 bytes and a state directory may be longer.
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
  while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED || errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    sys::throw_errno(std::string("connecting to ") + name);
  }
  return socket;
}

void remove_sandbox_directory(int parent, const std::string& name) noexcept {
  const UniqueFd directory = open_sandbox(parent, name);
  if (!directory) return;
  for (const char* file : {guest::kAgentSocketName, guest::kLeaseSocketName, guest::kBusyLockName,
                           guest::kNextRecordName, guest::kRecordName, guest::kContainerConfigName,
                           guest::kMachinePlanName}) {
    unlinkat(directory.get(), file, 0);
  }
  unlinkat(parent, name.c_str(), AT_REMOVEDIR);
}

void mark_used(int directory) noexcept {
  timespec times[2]{};
  times[0].tv_nsec = UTIME_OMIT;
  clock_gettime(CLOCK_BOOTTIME, &times[1]);
  utimensat(directory, guest::kBusyLockName, times, AT_SYMLINK_NOFOLLOW);
}

std::chrono::nanoseconds idle_time(int directory, std::uint64_t now) {
  struct stat status{};
  if (fstatat(directory, guest::kBusyLockName, &status, AT_SYMLINK_NOFOLLOW) < 0) return {};
  const auto since = std::chrono::seconds(status.st_mtim.tv_sec) +
                     std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return std::max(std::chrono::nanoseconds(now) - since, std::chrono::nanoseconds{0});
}

std::uint64_t boot_time() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace casemate::local
