#include "casemate/conformance/evidence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

namespace casemate::conformance {
namespace {

constexpr char kTold[] =
    "Name:\tcat\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
    "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    "Seccomp_filters:\t1\nnamespace cgroup:[1]\nnamespace ipc:[2]\nnamespace mnt:[3]\n"
    "namespace net:[4]\nnamespace pid:[5]\nnamespace user:[6]\nnamespace uts:[7]\n"
    "uids 1000 100000 1\ninterface lo\nroot 0:45 /\nkernel 6.1.0 #1 SMP\nboot b\n";

PlaceFacts host() {
  PlaceFacts facts;
  for (const char* kind : {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}) {
    facts.namespaces[kind] = std::string(kind) + ":[99]";
  }
  facts.root = "8:1 /";
  facts.kernel = "6.1.0 #1 SMP";
  facts.boot = "b";
  return facts;
}

Evidence whole() {
  PlaceFacts outside = parse_facts(kTold);
  outside.has_virtual_machine = true;
  return {.inside = parse_facts(kTold), .outside = outside, .host = host()};
}

using Change = std::function<void(Evidence&)>;

// Exactly one thing is missed, and it is called so.
void expect_missed(Isolation rung, const std::string& named, const Change& change) {
  Evidence evidence = whole();
  evidence.inside.kernel = meets_floor(rung, Isolation::hardened_container) ? "4.4" : host().kernel;
  EXPECT_EQ(lacking_evidence(rung, evidence), std::vector<std::string>{});
  change(evidence);
  const auto lacking = lacking_evidence(rung, evidence);
  ASSERT_EQ(lacking.size(), 1U) << named;
  EXPECT_NE(lacking[0].find(named), std::string::npos) << lacking[0];
}

TEST(Evidence, IsReadAsItWasTold) {
  const PlaceFacts facts = parse_facts(kTold);
  EXPECT_EQ(facts.namespaces.size(), 7U);
  EXPECT_EQ(facts.namespaces.at("net"), "net:[4]");
  EXPECT_EQ(facts.capabilities.size(), 5U);
  EXPECT_EQ(facts.uid_map, std::vector<std::string>{"1000 100000 1"});
  EXPECT_EQ(facts.interfaces, std::set<std::string>{"lo"});
  EXPECT_EQ(facts.root, "0:45 /");
  EXPECT_EQ(facts.kernel, "6.1.0 #1 SMP");
}

TEST(Evidence, OfOneThingLessIsNamed) {
  for (const char* kind : {"ipc", "mnt", "net", "pid", "uts"}) {
    expect_missed(Isolation::container, std::string(kind) + " namespace", [&](Evidence& evidence) {
      evidence.inside.namespaces[kind] = evidence.host.namespaces[kind];
    });
    expect_missed(Isolation::container, std::string(kind) + " namespace",
                  [&](Evidence& evidence) { evidence.inside.namespaces.erase(kind); });
    expect_missed(Isolation::container, "seen from outside", [&](Evidence& evidence) {
      evidence.outside->namespaces[kind] = evidence.host.namespaces[kind];
    });
  }
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    expect_missed(Isolation::os_process, set, [&](Evidence& evidence) {
      evidence.inside.capabilities[set] = "0000000000000001";
    });
  }
  expect_missed(Isolation::os_process, "no_new_privs",
                [](Evidence& evidence) { evidence.inside.no_new_privs = "0"; });
  expect_missed(Isolation::os_process, "filter or a mount namespace", [](Evidence& evidence) {
    evidence.inside.seccomp = "0";
    evidence.inside.namespaces.erase("mnt");
  });
  expect_missed(Isolation::container, "root directory",
                [](Evidence& evidence) { evidence.inside.root = evidence.host.root; });
  expect_missed(Isolation::hardened_container, "a kernel",
                [](Evidence& evidence) { evidence.inside.kernel = evidence.host.kernel; });
  for (const Isolation rung : {Isolation::microvm, Isolation::vm}) {
    expect_missed(rung, "virtual machine",
                  [](Evidence& evidence) { evidence.outside->has_virtual_machine = false; });
    expect_missed(rung, "virtual machine", [](Evidence& evidence) { evidence.outside.reset(); });
  }
}

TEST(Evidence, FromOutsideIsNoneAgainstWhatMayNotBeLookedAt) {
  Evidence evidence = whole();
  evidence.outside->namespaces.clear();
  EXPECT_EQ(lacking_evidence(Isolation::container, evidence), std::vector<std::string>{});
}

TEST(Evidence, OfNothingShowsNoRungButProcess) {
  const Evidence nothing{.inside = {}, .outside = {}, .host = host()};
  EXPECT_EQ(lacking_evidence(Isolation::process, nothing), std::vector<std::string>{});
  for (const Isolation rung : {Isolation::runtime, Isolation::os_process, Isolation::container,
                               Isolation::hardened_container, Isolation::microvm, Isolation::vm}) {
    EXPECT_NE(lacking_evidence(rung, nothing), std::vector<std::string>{}) << to_string(rung);
  }
}

TEST(Evidence, OfAProcessOfThisHostIsReadFromProc) {
  const PlaceFacts self = facts_of_process("self");
  EXPECT_EQ(self.namespaces.size(), 7U);
  EXPECT_EQ(self.capabilities.size(), 5U);
  EXPECT_NE(self.root, "");
  EXPECT_FALSE(self.uid_map.empty());
  EXPECT_EQ(facts_of_process(std::to_string(getpid())), self);
}

TEST(Hardening, IsToldWhereItIsNotSeen) {
  Evidence evidence = whole();
  EXPECT_EQ(lacking_hardening(evidence), std::vector<std::string>{});
  evidence.inside.seccomp = "0";
  evidence.outside->uid_map = {"0 0 4294967295"};
  evidence.inside.namespaces.erase("user");
  evidence.inside.interfaces = {"lo", "eth0"};
  evidence.inside.capabilities["CapBnd"] = "1";
  evidence.inside.namespaces["cgroup"] = evidence.host.namespaces["cgroup"];
  EXPECT_EQ(lacking_hardening(evidence).size(), 6U);
}

}  // namespace
}  // namespace casemate::conformance
