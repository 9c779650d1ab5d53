#include "casemate/guest/agent/enclosure_config.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace casemate::guest {
namespace {

namespace json = boost::json;

const EnclosureFiles kFiles{.root = "/root \"dir\"\\\n", .program = "/p", .machine_id = "/m"};

json::value config(const EnclosedPlan& plan = {.work_dir = "/workspace"}) {
  CreateSandbox request{};
  request.disk_bytes = 16 << 20;
  return json::parse(enclosure_config(request, plan, kFiles));
}

std::set<std::string> words(const json::value& list) {
  std::set<std::string> all;
  for (const json::value& word : list.as_array()) all.emplace(word.as_string());
  return all;
}

TEST(EnclosureConfig, GivesTheAgentNoRightThatItDoesNotNeed) {
  const json::value all = config();
  const json::value& process = all.at("process");
  EXPECT_TRUE(process.at("noNewPrivileges").as_bool());
  EXPECT_FALSE(process.at("terminal").as_bool());
  EXPECT_TRUE(process.at("env").as_array().empty()) << "nothing of the host's";
  for (const char* set : {"bounding", "effective", "permitted"}) {
    EXPECT_EQ(words(process.at("capabilities").at(set)),
              (std::set<std::string>{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL",
                                     "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_ADMIN"}))
        << set;
  }
}

TEST(EnclosureConfig, StartsTheAgentWithItsPlan) {
  const json::value all = config({.work_dir = "/work",
                                  .open_files = 1,
                                  .processes = 2,
                                  .cpu_seconds = 3,
                                  .directory_bytes = 4});
  EXPECT_EQ(all.at("process").at("args"),
            (json::value{"/casemate/guest", "enclosed", "/work", "1", "2", "3", "4"}));
}

TEST(EnclosureConfig, HasNothingOfTheHostsThatCanBeWritten) {
  const json::value all = config();
  EXPECT_TRUE(all.at("root").at("readonly").as_bool());
  EXPECT_EQ(all.at("root").at("path"), "/root \"dir\"\\\n");
  std::map<std::string, std::string> sources;
  for (const json::value& mount : all.at("mounts").as_array()) {
    if (mount.at("type") != "bind") continue;
    EXPECT_TRUE(words(mount.at("options")).contains("ro")) << mount;
    sources.emplace(mount.at("destination").as_string(), mount.at("source").as_string());
  }
  EXPECT_EQ(sources, (std::map<std::string, std::string>{{"/casemate/guest", "/p"},
                                                         {"/etc/machine-id", "/m"}}));
}

TEST(EnclosureConfig, BoundsWhatCanBeWrittenByTheDiskBound) {
  std::uint64_t bytes = 0;
  const json::value all = config();
  for (const json::value& mount : all.at("mounts").as_array()) {
    if (mount.at("type") != "tmpfs") continue;
    const std::set<std::string> options = words(mount.at("options"));
    EXPECT_TRUE(options.contains("nosuid") && options.contains("nodev")) << mount;
    // Files that only root writes are ours.
    if (!options.contains("mode=1777") && mount.at("destination") != "/home/user") continue;
    for (const std::string& option : options) {
      if (option.starts_with("size=")) bytes += std::stoull(option.substr(5));
    }
  }
  EXPECT_EQ(bytes, std::uint64_t{16} << 20);
}

TEST(EnclosureConfig, LeavesNoNamespaceOfThisMachines) {
  std::set<std::string> kinds;
  const json::value all = config();
  for (const json::value& one : all.at("linux").at("namespaces").as_array()) {
    EXPECT_EQ(one.as_object().size(), 1U) << "a path would join somebody else's";
    kinds.emplace(one.at("type").as_string());
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"mount", "pid", "network", "ipc", "uts"}));
}

}  // namespace
}  // namespace casemate::guest
