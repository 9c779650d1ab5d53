#include "casemate/guest/agent/container_config.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>
#include <string>

namespace casemate::guest {
namespace {

namespace json = boost::json;

json::value config(std::string_view groups_path = "",
                   TemplateDevices devices = TemplateDevices::nodes) {
  return json::parse(
      container_config({.first_user = 2000, .first_group = 3000}, groups_path, devices));
}

std::set<std::string> words(const json::value& list) {
  std::set<std::string> all;
  for (const json::value& word : list.as_array()) all.emplace(word.as_string());
  return all;
}

TEST(ContainerConfig, GivesEveryNamespaceThereIs) {
  std::set<std::string> kinds;
  const json::value all = config();
  for (const json::value& one : all.at("linux").at("namespaces").as_array()) {
    EXPECT_EQ(one.as_object().size(), 1U) << "a path would join somebody else's";
    kinds.emplace(one.at("type").as_string());
  }
  EXPECT_EQ(kinds,
            (std::set<std::string>{"user", "mount", "pid", "network", "ipc", "uts", "cgroup"}));
}

TEST(ContainerConfig, MapsTwoIdsThatAreNobodyElses) {
  const json::value all = config();
  for (const auto& [name, first] :
       {std::pair("uidMappings", 2000), std::pair("gidMappings", 3000)}) {
    const json::array& map = all.at("linux").at(name).as_array();
    ASSERT_EQ(map.size(), 2U);
    EXPECT_EQ(map[0], (json::value{{"containerID", 0}, {"hostID", first}, {"size", 1}}));
    EXPECT_EQ(map[1], (json::value{{"containerID", 1000}, {"hostID", first + 1}, {"size", 1}}));
  }
}

TEST(ContainerConfig, GivesTheAgentNoRightThatItDoesNotNeed) {
  const json::value all = config();
  const json::value& process = all.at("process");
  EXPECT_TRUE(process.at("noNewPrivileges").as_bool());
  EXPECT_FALSE(process.at("terminal").as_bool());
  EXPECT_TRUE(process.at("env").as_array().empty()) << "nothing of the host's";
  const std::set<std::string> wanted = {"CAP_CHOWN",     "CAP_DAC_OVERRIDE",     "CAP_FOWNER",
                                        "CAP_KILL",      "CAP_SETGID",           "CAP_SETUID",
                                        "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP",
                                        "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"};
  for (const char* set : {"bounding", "effective", "permitted"}) {
    EXPECT_EQ(words(process.at("capabilities").at(set)), wanted) << set;
  }
  EXPECT_FALSE(process.at("capabilities").as_object().contains("ambient"));
  EXPECT_FALSE(process.at("capabilities").as_object().contains("inheritable"));
}

TEST(ContainerConfig, BindsNothingOfTheHostsThatCanBeWritten) {
  const json::value all = config("", TemplateDevices::views);
  EXPECT_TRUE(all.at("root").at("readonly").as_bool());
  EXPECT_EQ(all.at("mounts").as_array().size(), 7U) << "/proc, /dev and five devices";
  EXPECT_EQ(config().at("mounts").as_array().size(), 2U);
  for (const json::value& mount : all.at("mounts").as_array()) {
    const std::set<std::string> options = words(mount.at("options"));
    EXPECT_TRUE(options.contains("nosuid"));
    EXPECT_TRUE(options.contains("noexec"));
    EXPECT_EQ(options.contains("ro"), mount.at("type") == "bind");
  }
  // A part of /proc that were covered would keep calls from mounting theirs, which cover it anew.
  EXPECT_FALSE(all.at("linux").as_object().contains("maskedPaths"));
}

TEST(ContainerConfig, NamesAControlGroupOnlyWhereOneIsWanted) {
  EXPECT_FALSE(config().at("linux").as_object().contains("cgroupsPath"));
  EXPECT_EQ(config("/group").at("linux").at("cgroupsPath"), "/group");
}

}  // namespace
}  // namespace casemate::guest
