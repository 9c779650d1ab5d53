// The docker backend as the command line has it, with real engines.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/docker/engines.h"

namespace casemate::docker_tests {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class DockerCommandLine : public DockerTest {
 protected:
  void SetUp() override {
    DockerTest::SetUp();
    if (!backend_) return;
    write("casemate.toml",
          fmt::format("[backends.docker]\nhost = \"{}\"\nimage = \"{}\"\npull = \"never\"\n",
                      engine_under_test(GetParam()).address, kImage));
  }

  std::string write(const std::string& name, std::string_view content) const {
    const fs::path path = state_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // `casemate WORDS`, with the engine under test in its configuration.
  Ran casemate(std::vector<std::string> words) const {
    const char* build = getenv("CASEMATE_BUILD_DIR");
    words.insert(words.begin(),
                 std::string(build == nullptr ? "build/release" : build) + "/casemate");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables{"PATH=/usr/bin:/bin",
                                       "CASEMATE_STATE_DIR=" + state_.string(),
                                       "CASEMATE_CONFIG=" + (state_ / "casemate.toml").string()};
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const fs::path out = state_ / "out";
    const fs::path err = state_ / "err";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kWrite, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kWrite, 0600);
    pid_t pid = -1;
    const int failed =
        posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return {-1, "", "it could not be started"};
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(out), text_of(err)};
  }

  // The records of `casemate VERB --json` by name.
  std::map<std::string, json::object> records(const std::string& verb) const {
    std::map<std::string, json::object> found;
    const Ran ran = casemate({verb, "--json"});
    const json::value all = json::parse(ran.out);
    for (const json::value& each : all.as_array()) {
      found[std::string(each.at("name").as_string())] = each.as_object();
    }
    return found;
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, DockerCommandLine, testing::Values("docker", "podman"),
                         [](const auto& each) { return each.param; });

// DK-05
TEST_P(DockerCommandLine, ARunSharesAndLandsFilesAndLeavesNothing) {
  const std::string program =
      write("program.py", "print(1)\nopen('out.txt', 'w').write(open('in.txt').read() * 2)\n");
  const std::string input = write("in.txt", "twice ");
  const std::string landing = state_ / "landing";
  const Ran ran = casemate({"run", "--backend", "docker", "--json", "--file", input, "--output",
                            "out.txt", "--out-dir", landing, program});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const json::object result = json::parse(ran.out).as_object();
  EXPECT_EQ(result.at("stdout"), "1\n");
  EXPECT_EQ(result.at("sandbox").at("backend"), "docker");
  EXPECT_EQ(result.at("sandbox").at("isolation"), "container");
  EXPECT_EQ(text_of(fs::path(landing) / "out.txt"), "twice twice ");
  EXPECT_EQ(containers().size(), 0U);
}

TEST_P(DockerCommandLine, BackendsAndDoctorTellWhatTheEngineIs) {
  const auto backends = records("backends");
  const json::object& backend = backends.at("docker");
  EXPECT_EQ(backend.at("available"), true) << json::serialize(backend);
  EXPECT_THAT(std::string(backend.at("engine").as_string()), StartsWith(GetParam() + " "));
  const auto findings = records("doctor");
  EXPECT_EQ(findings.at("docker").at("status"), "ok") << json::serialize(findings.at("docker"));
  // Its own user namespace is what an engine's container lacks by default.
  EXPECT_NE(findings.at("docker: boundary").at("status"), "missing")
      << json::serialize(findings.at("docker: boundary"));
  EXPECT_EQ(findings.at("docker: python3").at("status"), "ok");
}

TEST_P(DockerCommandLine, WhatARunKeepsIsListedUsedAndRemoved) {
  const std::string program = write("program.py", "open('/workspace/kept', 'w').write('kept')\n");
  ASSERT_EQ(casemate({"run", "--backend", "docker", "--thread", "t", "--keep", program}).status, 0);
  const Ran listed = casemate({"ls", "--json"});
  const json::array all = json::parse(listed.out).as_array();
  ASSERT_EQ(all.size(), 1U) << listed.out;
  EXPECT_EQ(all[0].at("backend"), "docker");
  EXPECT_EQ(all[0].at("thread"), "t");
  const Ran read = casemate({"exec", "--thread", "t", "--", "cat", "/workspace/kept"});
  EXPECT_EQ(read.out, "kept") << read.err;
  const Ran removed = casemate({"rm", std::string(all[0].at("id").as_string())});
  EXPECT_EQ(removed.out, "removed 1\n") << removed.err;
  EXPECT_EQ(containers().size(), 0U);
}

}  // namespace
}  // namespace casemate::docker_tests
