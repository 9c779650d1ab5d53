#include "casemate/core/spec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <set>

#include "casemate/core/egress.h"
#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

SandboxSpec small_spec() {
  SandboxSpec spec;
  spec.kind = "codeact";
  return spec;
}

TEST(CheckSpec, RefusesAListOfTooManyHosts) {
  SandboxSpec spec;
  spec.kind = "k";
  spec.egress = Egress::allowlist;
  for (std::size_t host = 0; host < kMaxDoorRules; ++host) {
    spec.egress_allow.push_back(HostPattern::parse("h" + std::to_string(host) + ".test"));
  }
  check_spec(spec);
  spec.egress_allow.push_back(HostPattern::parse("one-more.test"));
  expect_refusal<InvalidArgument>([&] { check_spec(spec); }, "1025 hosts");
}

TEST(CheckKey, NamesThePartThatIsEmpty) {
  expect_refusal<InvalidArgument>([] { check_key({"", "t", "a"}); }, "scope");
  expect_refusal<InvalidArgument>([] { check_key({"s", "", "a"}); }, "thread_id");
  expect_refusal<InvalidArgument>([] { check_key({"s", "t", ""}); }, "agent_dir");
  // NM-06: long and odd parts are fine; they are mapped, not cut.
  EXPECT_NO_THROW(check_key({std::string(300, 's'), "\U0001F600/..\n", "a"}));
}

TEST(CheckSpec, RefusesAnEmptyKind) {
  expect_refusal<InvalidArgument>([] { check_spec({}); }, "kind is empty");
}

TEST(CheckSpec, HostsAreAcceptedOnlyWithAllowlist) {
  SandboxSpec spec = small_spec();
  spec.egress_allow = {HostPattern::parse("a.example.org"), HostPattern::parse("*.b.org:8443")};
  for (const Egress egress : {Egress::closed, Egress::unrestricted}) {
    spec.egress = egress;
    expect_refusal<InvalidArgument>([&] { check_spec(spec); },
                                    {"a.example.org, *.b.org:8443", to_string(egress)});
  }
  spec.egress = Egress::allowlist;
  EXPECT_NO_THROW(check_spec(spec));
  spec.egress_allow.clear();
  EXPECT_NO_THROW(check_spec(spec));
}

TEST(CheckSpec, RefusesBoundsThatCannotWork) {
  SandboxSpec spec = small_spec();
  spec.resources.pids = stated(3);
  expect_refusal<InvalidArgument>([&] { check_spec(spec); }, "pids of 3");
}

TEST(CheckSpec, RefusesANegativeIdleTimeAndAnEmptyImage) {
  SandboxSpec spec = small_spec();
  spec.keep_idle = std::chrono::milliseconds(-1);
  expect_refusal<InvalidArgument>([&] { check_spec(spec); }, "keep_idle of -1 ms");
  spec = small_spec();
  spec.image = "";
  expect_refusal<InvalidArgument>([&] { check_spec(spec); }, "image reference is empty");
}

TEST(CheckSpec, DefaultsAreTheContracts) {
  const SandboxSpec spec;
  EXPECT_EQ(spec.work_dir, "/workspace");
  EXPECT_EQ(spec.egress, Egress::closed);
  EXPECT_EQ(spec.requires_capabilities, default_capabilities());
  EXPECT_FALSE(spec.min_isolation);
  EXPECT_EQ(spec.keep_idle.count(), 0);
  EXPECT_EQ(spec.files_in, kDefaultTransferLimits);
  const DeclaredOutput output{.path = "x"};
  EXPECT_EQ(output.disposition, OutputDisposition::land);
  EXPECT_TRUE(output.required);
}

// A sandbox made with one of these cannot serve a spec with another.
TEST(SpecFingerprint, DiffersByWhatASandboxIsMadeWith) {
  const std::vector<std::function<void(SandboxSpec&)>> changes{
      [](SandboxSpec&) {},
      [](SandboxSpec& spec) { spec.image = "host"; },
      [](SandboxSpec& spec) { spec.image = "hos"; },
      [](SandboxSpec& spec) { spec.image_id = "host"; },
      [](SandboxSpec& spec) { spec.egress = Egress::unrestricted; },
      [](SandboxSpec& spec) { spec.egress = Egress::allowlist; },
      [](SandboxSpec& spec) {
        spec.egress = Egress::allowlist;
        spec.egress_allow = {HostPattern::parse("a.org")};
      },
      [](SandboxSpec& spec) {
        spec.egress = Egress::allowlist;
        spec.egress_allow = {HostPattern::parse("a.org:443")};
      },
      [](SandboxSpec& spec) { spec.work_dir = "/work"; },
      [](SandboxSpec& spec) { spec.resources.memory_bytes.value += 1; },
      [](SandboxSpec& spec) { spec.resources.memory_bytes.stated = true; },
      [](SandboxSpec& spec) { spec.resources.pids.value += 1; },
      [](SandboxSpec& spec) { spec.resources.cpu_millis.value += 1; },
      [](SandboxSpec& spec) { spec.resources.cpu_seconds = ResourceLimit{}; },
      [](SandboxSpec& spec) { spec.resources.cpu_seconds = stated(1); },
      [](SandboxSpec& spec) { spec.resources.disk_bytes.value += 1; },
      [](SandboxSpec& spec) { spec.resources.disk_inodes.value += 1; },
      [](SandboxSpec& spec) { spec.resources.open_files.value += 1; },
  };
  std::set<std::string> seen;
  for (const auto& change : changes) {
    SandboxSpec spec = small_spec();
    change(spec);
    const std::string fingerprint = spec_fingerprint(spec, "build");
    EXPECT_EQ(fingerprint.size(), 64U);
    EXPECT_EQ(fingerprint, spec_fingerprint(spec, "build"));
    seen.insert(fingerprint);
  }
  seen.insert(spec_fingerprint(small_spec(), "another build"));
  EXPECT_EQ(seen.size(), changes.size() + 1);
}

TEST(SpecFingerprint, DoesNotDependOnWhatBelongsToTheCall) {
  const std::string fingerprint = spec_fingerprint(small_spec(), "build");
  SandboxSpec spec = small_spec();
  spec.labels = {{"a", "b"}};
  spec.declared_outputs = {{.path = "x"}};
  spec.files_in.max_files = 1;
  spec.requires_capabilities.insert(Capability::files_out);
  spec.min_isolation = Isolation::vm;
  spec.identities = {Identity::app};
  spec.outputs_named_at_call_time = true;
  EXPECT_EQ(spec_fingerprint(spec, "build"), fingerprint);
}

TEST(SpecFingerprint, OrderAndRepetitionOfHostsDoNotMatter) {
  SandboxSpec spec = small_spec();
  spec.egress = Egress::allowlist;
  spec.egress_allow = {HostPattern::parse("a.org"), HostPattern::parse("b.org")};
  SandboxSpec other = spec;
  other.egress_allow = {HostPattern::parse("B.org."), HostPattern::parse("a.org"),
                        HostPattern::parse("a.org")};
  EXPECT_EQ(spec_fingerprint(spec, "build"), spec_fingerprint(other, "build"));
}

// NM-06
TEST(IdentityDigest, KeepsApartPartsThatJoinToTheSameText) {
  const std::set<std::string> digests{identity_digest({"ab", "c", "d"}, "k"),
                                      identity_digest({"a", "bc", "d"}, "k"),
                                      identity_digest({"a", "b", "cd"}, "k"),
                                      identity_digest({"a", "b", "c"}, "dk"),
                                      identity_digest({"1:a", "b", "c"}, "k"),
                                      identity_digest({"a1:b", "c", "d"}, "k"),
                                      identity_digest({std::string(300, 'x'), "b", "c"}, "k"),
                                      identity_digest({std::string(301, 'x'), "b", "c"}, "k")};
  EXPECT_EQ(digests.size(), 8U);
}

TEST(IdentityDigest, IsTheGoldenOne) {
  // The first 24 digits of: printf '1:s1:t1:a7:codeact' | sha256sum
  EXPECT_EQ(identity_digest({"s", "t", "a"}, "codeact"), "1458be91a87be2b5a8c2ee5a");
}

RC_GTEST_PROP(IdentityDigest, EqualKeysOnlyHaveEqualDigests, ()) {
  const auto part = rc::gen::container<std::string>(rc::gen::elementOf(std::string("1:a")));
  const SandboxKey left{*part, *part, *part};
  const SandboxKey right{*part, *part, *part};
  RC_ASSERT((identity_digest(left, "k") == identity_digest(right, "k")) == (left == right));
}

TEST(ImageForm, IsReadFromThePrefix) {
  EXPECT_EQ(image_form("host"), ImageForm::host);
  EXPECT_EQ(image_form("dir:/srv/root"), ImageForm::dir);
  EXPECT_EQ(image_form("oci:/srv/image:tag"), ImageForm::oci);
  EXPECT_EQ(image_form("docker-archive:/srv/a.tar"), ImageForm::docker_archive);
  EXPECT_EQ(image_form("python:3.12"), ImageForm::registry);
  EXPECT_EQ(image_form("hosts"), ImageForm::registry);
  EXPECT_EQ(image_form("localhost:5000/a"), ImageForm::registry);
  EXPECT_THROW(image_form(""), InvalidArgument);
}

}  // namespace
}  // namespace casemate
