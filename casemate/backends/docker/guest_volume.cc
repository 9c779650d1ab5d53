#include "casemate/backends/docker/guest_volume.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <exception>
#include <span>
#include <string_view>

#include "casemate/backends/docker/labels.h"
#include "casemate/base/json.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/support_files.h"

namespace casemate::docker {
namespace {

namespace json = boost::json;

// What the entry is another name of.
constexpr char kProgram[] = "guest.program";
constexpr char kEntry[] = "guest";

// POSIX's ustar, of the few things that are in it here. (libarchive's writer would be seven more
// libraries, for all the formats that it knows.)
class Tar {
 public:
  void directory(const std::string& path) { add(path + "/", '5', 0755, {}); }
  void file(const std::string& path, unsigned mode, std::string_view content) {
    add(path, '0', mode, content);
  }
  void link(const std::string& path, std::string_view to) { add(path, '1', 0555, {}, to); }

  std::string take() {
    bytes_.append(2 * kBlock, '\0');
    return std::move(bytes_);
  }

 private:
  static constexpr std::size_t kBlock = 512;

  void add(std::string_view path, char type, unsigned mode, std::string_view content,
           std::string_view to = {}) {
    if (path.size() > 100 || to.size() > 100) {
      throw SandboxUnavailable(fmt::format("{} is too long a name for an archive", path));
    }
    std::string head(kBlock, '\0');
    const auto put = [&](std::size_t at, std::string_view text) {
      head.replace(at, text.size(), text);
    };
    put(0, path);
    put(100, fmt::format("{:07o}", mode));
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", content.size()));
    put(136, "00000000000");
    put(148, "        ");
    head[156] = type;
    put(157, to);
    put(257, std::string_view("ustar\0"
                              "00",
                              8));
    unsigned sum = 0;
    for (const char byte : head) sum += static_cast<unsigned char>(byte);
    put(148, fmt::format("{:06o}", sum));
    head[154] = '\0';
    bytes_ += head;
    bytes_ += content;
    bytes_.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  }

  std::string bytes_;
};

void sweep_other_builds(Engine& engine, const CallControl& control) {
  for (const std::string& name : engine.list_volumes(std::string(kGuestLabel), control)) {
    if (name != guest_volume() && name.starts_with("casemate-guest-")) {
      engine.remove_volume(name, control);
    }
  }
}

}  // namespace

std::string guest_volume() { return "casemate-guest-" + guest::guest_build_id().substr(0, 24); }

std::string guest_archive() {
  Tar tar;
  for (const char* path : {"bin", "python", "python/__pycache__", "host", "calls"}) {
    tar.directory(path);
  }
  for (const guest::SupportFile& file : guest::support_files()) {
    tar.file(file.path, file.mode, file.content);
  }
  const std::span<const char> program = guest::guest_program();
  tar.file(kProgram, 0555, {program.data(), program.size()});
  tar.link(kEntry, kProgram);
  return tar.take();
}

void fill_guest_volume(Engine& engine, const std::string& image, const std::string& helper,
                       const std::map<std::string, std::string>& labels,
                       const CallControl& control) {
  engine.make_volume(guest_volume(),
                     {{std::string(kOwnerLabel), std::string(kOwner)},
                      {std::string(kGuestLabel), guest::guest_build_id().substr(0, 24)}},
                     control);
  json::object all;
  for (const auto& [name, value] : labels) all[name] = value;
  const json::object body{
      {"Image", image},
      {"Entrypoint", json::array{kGuestEntry}},
      {"Labels", std::move(all)},
      {"NetworkDisabled", true},
      {"HostConfig",
       {{"NetworkMode", "none"},
        {"LogConfig", {{"Type", "none"}}},
        {"Mounts", json::array{json::object{{"Type", "volume"},
                                            {"Source", guest_volume()},
                                            {"Target", kGuestDirectory},
                                            {"VolumeOptions", {{"NoCopy", true}}}}}}}}};
  auto id = engine.create(helper, serialise_json(body), control);
  if (!id) {
    const auto found = engine.inspect(helper, control);
    if (found && !is_owned(found->labels)) {
      throw SandboxUnavailable(
          fmt::format("the engine has a container {} that is not Casemate's", helper),
          "it was not touched; remove it, or use another thread in the key");
    }
    if (found) engine.remove(found->id, control);
    id = engine.create(helper, serialise_json(body), control);
  }
  if (!id) throw SandboxUnavailable(fmt::format("the name {} is taken by others", helper));
  try {
    engine.put_archive(*id, std::string(kGuestDirectory), guest_archive(), control);
  } catch (...) {
    try {
      engine.remove(*id, {});
    } catch (const std::exception&) {
      // It carries our labels: the next sweep finds it.
    }
    throw;
  }
  // Whatever the caller's bounds: nobody else would for a while.
  engine.remove(*id, {});
  sweep_other_builds(engine, control);
}

}  // namespace casemate::docker
