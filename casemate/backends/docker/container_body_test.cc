#include "casemate/backends/docker/container_body.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <string>

#include "casemate/base/json.h"

namespace casemate::docker {
namespace {

namespace json = boost::json;

struct Wish {
  SandboxSpec spec{.kind = "k"};
  ImageFacts image{.id = "sha256:1"};
  EngineFacts engine{
      .processors = 2, .bounds_memory = true, .bounds_processes = true, .bounds_cpu = true};
  std::map<std::string, std::string> labels{{"a", "b"}};
  std::string runtime{};
  std::chrono::milliseconds first_lease{0};
  std::string host_kernel{};

  json::object body() const {
    return parse_json(container_body({.spec = spec,
                                      .image = image,
                                      .engine = engine,
                                      .labels = labels,
                                      .shared_path = "/state/place",
                                      .runtime = runtime,
                                      .first_lease = first_lease,
                                      .host_kernel = host_kernel}))
        .as_object();
  }
  json::object host() const { return body().at("HostConfig").as_object(); }
};

TEST(ContainerBody, GivesNoNetworkNoWritableRootAndFewRights) {
  const json::object host = Wish().host();
  EXPECT_EQ(host.at("NetworkMode"), "none");
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("CapDrop"), json::array{"ALL"});
  EXPECT_EQ(host.at("SecurityOpt"), json::array{"no-new-privileges"});
  EXPECT_EQ(host.at("IpcMode"), "none");
  EXPECT_FALSE(host.contains("Privileged"));
  for (const json::value& each : host.at("CapAdd").as_array()) {
    EXPECT_NE(each, "SYS_ADMIN");
    EXPECT_NE(each, "SYS_PTRACE");
    EXPECT_NE(each, "NET_ADMIN");
  }
}

TEST(ContainerBody, GivesTheRightToMakeNamespacesWithAKernelOfItsOwnOnlyAndNamesTheHostsThen) {
  Wish wish;
  wish.runtime = "runsc";
  wish.first_lease = std::chrono::seconds(30);
  wish.spec.resources.pids = stated(24);
  const auto may_make_namespaces = [&] {
    const json::object host = wish.host();
    const json::array& added = host.at("CapAdd").as_array();
    return std::ranges::find(added, "SYS_ADMIN") != added.end();
  };
  EXPECT_FALSE(may_make_namespaces());
  EXPECT_EQ(wish.body().at("Cmd").as_array().size(), 6U);
  wish.host_kernel = "6.1 #1";
  EXPECT_TRUE(may_make_namespaces());
  const json::array words = wish.body().at("Cmd").as_array();
  EXPECT_EQ(words.at(6), "6.1 #1");
  EXPECT_EQ(words.at(7), "24");
}

// Of a kernel of its own the engine would count threads that no program has.
TEST(ContainerBody, BoundsAKernelOfItsOwnByMemoryThatItHasRoomIn) {
  Wish wish;
  wish.host_kernel = "6.1 #1";
  const Wish shared;
  EXPECT_EQ(wish.host().at("Memory").to_number<std::uint64_t>(),
            shared.host().at("Memory").to_number<std::uint64_t>() + 192 * kMiB);
  EXPECT_FALSE(wish.host().contains("PidsLimit"));
  EXPECT_TRUE(shared.host().contains("PidsLimit"));
  // Each call has its own there.
  const json::object tmpfs = wish.host().at("Tmpfs").as_object();
  EXPECT_NE(std::string(tmpfs.at("/tmp").as_string()).find("mode=755"), std::string::npos);
}

TEST(ContainerBody, SharesOneDirectoryWithTheHostAndNothingElse) {
  const json::object host = Wish().host();
  std::size_t binds = 0;
  for (const json::value& mount : host.at("Mounts").as_array()) {
    if (mount.at("Type") != "bind") continue;
    ++binds;
    EXPECT_EQ(mount.at("Source"), "/state/place");
    EXPECT_EQ(mount.at("Target"), "/casemate/host");
  }
  EXPECT_EQ(binds, 1U);
  EXPECT_FALSE(host.contains("Binds"));
}

TEST(ContainerBody, SharesNothingWhereAStreamLeadsToIt) {
  Wish wish;
  wish.first_lease = std::chrono::seconds(30);
  const json::object host = wish.host();
  for (const json::value& mount : host.at("Mounts").as_array()) {
    EXPECT_EQ(mount.at("Type"), "volume");
    EXPECT_EQ(mount.at("ReadOnly"), true);
  }
  const json::value& own = host.at("Tmpfs").at("/casemate/host");
  EXPECT_NE(std::string(own.as_string()).find("mode=700"), std::string::npos);
}

TEST(ContainerBody, HoldsTheBoundsThatTheEngineHolds) {
  Wish wish;
  wish.spec.resources.memory_bytes = stated(64 * kMiB);
  wish.spec.resources.disk_bytes = stated(16 * kMiB);
  wish.spec.resources.pids = stated(24);
  wish.spec.resources.cpu_millis = stated(500);
  EXPECT_EQ(wish.host().at("Memory").to_number<std::uint64_t>(), 80 * kMiB);
  EXPECT_EQ(wish.host().at("MemorySwap").to_number<std::uint64_t>(), 80 * kMiB);
  EXPECT_EQ(wish.host().at("PidsLimit").to_number<std::uint64_t>(), 27U);
  EXPECT_EQ(wish.host().at("NanoCpus").to_number<std::uint64_t>(), 500'000'000U);
  wish.engine = {.processors = 2};
  for (const char* name : {"Memory", "MemorySwap", "PidsLimit", "NanoCpus"}) {
    EXPECT_FALSE(wish.host().contains(name)) << name;
  }
}

TEST(ContainerBody, SharesOfDiskAreTogetherWhatWasAsked) {
  for (const std::uint64_t bytes : {kMinDiskBytes, 256 * kMiB, std::uint64_t{12345678}}) {
    SandboxSpec spec;
    spec.resources.disk_bytes.value = bytes;
    for (const ContainerKernel kernel : {ContainerKernel::shared, ContainerKernel::own}) {
      std::uint64_t sum = 0;
      std::uint64_t inodes = 0;
      for (const DiskShare& share : disk_shares(spec, kernel)) {
        sum += share.bytes;
        inodes += share.inodes;
        EXPECT_GT(share.bytes, 0U) << share.path;
      }
      EXPECT_EQ(sum, bytes);
      EXPECT_EQ(inodes, spec.resources.disk_inodes.value);
    }
  }
}

// Nobody bounds an engine's volumes.
TEST(ContainerBody, CoversTheVolumesThatAnImageAsksFor) {
  Wish wish;
  wish.image.volumes = {"/data", "/tmp"};
  const json::object tmpfs = wish.host().at("Tmpfs").as_object();
  EXPECT_NE(std::string(tmpfs.at("/data").as_string()).find("mode=555"), std::string::npos);
  EXPECT_NE(std::string(tmpfs.at("/tmp").as_string()).find("mode=1777"), std::string::npos);
}

TEST(ContainerBody, HasNoHealthCheckOfTheImages) {
  Wish wish;
  EXPECT_FALSE(wish.body().contains("Healthcheck"));
  wish.image.has_health_check = true;
  EXPECT_EQ(wish.body().at("Healthcheck").at("Test"), json::array{"NONE"});
}

TEST(ContainerBody, NamesARuntimeOnlyWhenOneWasChosen) {
  EXPECT_FALSE(Wish().host().contains("Runtime"));
  Wish wish;
  wish.runtime = "runsc";
  EXPECT_EQ(wish.host().at("Runtime"), "runsc");
}

}  // namespace
}  // namespace casemate::docker
