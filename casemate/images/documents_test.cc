#include "casemate/images/documents.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::images {
namespace {

const std::string kA = "sha256:" + std::string(64, 'a');
const std::string kB = "sha256:" + std::string(64, 'b');
constexpr Platform kHere{.os = "linux", .architecture = "amd64"};

std::string entry(const std::string& digest, const std::string& more = "",
                  const std::string& type = "application/vnd.oci.image.manifest.v1+json") {
  return fmt::format(R"({{"mediaType":"{}","digest":"{}","size":7{}}})", type, digest, more);
}
std::string named(const std::string& name) {
  return fmt::format(R"(,"annotations":{{"org.opencontainers.image.ref.name":"{}"}})", name);
}
std::string platform(const std::string& architecture, const std::string& os = "linux") {
  return fmt::format(R"(,"platform":{{"os":"{}","architecture":"{}"}})", os, architecture);
}
std::string index(const std::string& entries) {
  return fmt::format(R"({{"schemaVersion":2,"manifests":[{}]}})", entries);
}
std::string chosen(const std::string& entries, const std::string& tag = "") {
  return choose_manifest(index(entries), tag, kHere).digest;
}

TEST(ImageIndex, TheOnlyImageIsChosen) {
  EXPECT_EQ(chosen(entry(kA)), kA);
  EXPECT_EQ(chosen(entry(kA, named("any"))), kA);
  EXPECT_EQ(choose_manifest(index(entry(kA)), "", kHere).size, 7U);
}

TEST(ImageIndex, ATagChoosesItsImage) {
  const std::string both = entry(kA, named("a")) + "," + entry(kB, named("b"));
  EXPECT_EQ(chosen(both, "b"), kB);
  expect_refusal<SandboxImageInvalid>([&] { chosen(both, "c"); }, {"no tag 'c'", "a, b"});
  expect_refusal<SandboxImageInvalid>([&] { chosen(both); }, {"a, b", "oci:PATH:TAG"});
}

TEST(ImageIndex, OfSeveralMachinesThisOneIsChosen) {
  const std::string several = entry(kA, platform("arm64")) + "," + entry(kB, platform("amd64")) +
                              "," + entry(kA, platform("unknown", "unknown"));
  EXPECT_EQ(chosen(several), kB);
  expect_refusal<SandboxImageInvalid>(
      [&] { chosen(entry(kA, platform("arm64")) + "," + entry(kB, platform("s390x"))); },
      {"nothing for linux/amd64", "linux/arm64, linux/s390x"});
}

TEST(ImageIndex, WhatBuildersAttachIsNoImage) {
  EXPECT_EQ(chosen(entry(kA) + "," + entry(kB, platform("unknown", "unknown")) + "," +
                   entry(kB, "", "application/vnd.example.signature")),
            kA);
  expect_refusal<SandboxImageInvalid>([&] { chosen(entry(kA, "", "text/plain")); },
                                      "names no image");
  expect_refusal<SandboxImageInvalid>([&] { chosen(""); }, "names no image");
}

TEST(ImageIndex, WhatIsNoIndexIsRefused) {
  for (const std::string text :
       {"", "x", "[]", "{}", R"({"manifests":{}})", R"({"manifests":[1]})", R"({"manifests":[{}]})",
        R"({"manifests":[{"digest":"sha256:short","size":1}]})",
        R"({"manifests":[{"digest":7,"size":1}]})", R"({"manifests":[],"manifests":[]})"}) {
    expect_refusal<SandboxImageInvalid>([&] { choose_manifest(text, "", kHere); }, "index");
  }
  for (const char* size : {"-1", "1.5", "\"7\"", "99999999999999999999"}) {
    expect_refusal<SandboxImageInvalid>(
        [&] {
          choose_manifest(index(fmt::format(R"({{"digest":"{}","size":{}}})", kA, size)), "",
                          kHere);
        },
        "index");
  }
}

std::string manifest(const std::string& layers, const std::string& config = "") {
  return fmt::format(R"({{"config":{},"layers":[{}]}})", config.empty() ? entry(kA) : config,
                     layers);
}
std::string layer(const std::string& type) { return entry(kB, "", type); }

TEST(ImageManifest, TakesTarsOfEachCompressionOnly) {
  const Manifest read =
      parse_manifest(manifest(layer("application/vnd.oci.image.layer.v1.tar+zstd") + "," +
                              layer("application/vnd.docker.image.rootfs.diff.tar.gzip")));
  EXPECT_EQ(read.config.digest, kA);
  ASSERT_EQ(read.layers.size(), 2U);
  for (const char* type : {"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                           "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
                           "application/vnd.in-toto+json", ""}) {
    expect_refusal<SandboxImageInvalid>([&] { parse_manifest(manifest(layer(type))); }, type);
  }
}

TEST(ImageManifest, TakesUpTo128Layers) {
  std::string layers;
  for (int i = 0; i < 128; ++i) layers += layer("application/vnd.oci.image.layer.v1.tar") + ",";
  layers.pop_back();
  EXPECT_EQ(parse_manifest(manifest(layers)).layers.size(), 128U);
  layers += "," + layer("application/vnd.oci.image.layer.v1.tar");
  expect_refusal<SandboxImageInvalid>([&] { parse_manifest(manifest(layers)); }, "129 layers");
}

std::string config(const std::string& inner, const std::string& architecture = "amd64") {
  return fmt::format(
      R"({{"os":"linux","architecture":"{}","rootfs":{{"diff_ids":["{}"]}},"config":{}}})",
      architecture, kA, inner);
}

TEST(ImageConfig, HasItsVariablesOfWhichALaterOneWins) {
  const ImageConfig read = parse_config(config(R"({"Env":["A=1","B=x=y","A=2","C="]})"), kHere);
  EXPECT_EQ(read.environment,
            (std::map<std::string, std::string>{{"A", "2"}, {"B", "x=y"}, {"C", ""}}));
  EXPECT_EQ(read.diff_ids, std::vector<std::string>{kA});
  EXPECT_TRUE(parse_config(config("null"), kHere).environment.empty());
  EXPECT_TRUE(parse_config(config(R"({"Env":null})"), kHere).environment.empty());
}

TEST(ImageConfig, OfAnotherMachineIsRefused) {
  expect_refusal<SandboxImageInvalid>([&] { parse_config(config("{}", "arm64"), kHere); },
                                      {"linux/arm64", "linux/amd64"});
}

TEST(ImageConfig, AVariableWithoutANameIsRefused) {
  for (const char* variable : {"A", "=1", "", "A=\\u0000"}) {
    expect_refusal<SandboxImageInvalid>(
        [&] { parse_config(config(fmt::format(R"({{"Env":["{}"]}})", variable)), kHere); },
        "NAME=VALUE");
  }
  expect_refusal<SandboxImageInvalid>(
      [&] {
        parse_config(config(R"({"Env":["A=)" + std::string(128 * 1024, 'x') + R"("]})"), kHere);
      },
      "bytes of variables");
}

TEST(ArchiveManifest, NamesOneImage) {
  const ArchiveManifest read =
      parse_archive_manifest(R"([{"Config":"c.json","RepoTags":null,"Layers":["a","b"]}])");
  EXPECT_EQ(read.config, "c.json");
  EXPECT_EQ(read.layers, (std::vector<std::string>{"a", "b"}));
  expect_refusal<SandboxImageInvalid>(
      [&] {
        parse_archive_manifest(R"([{"Config":"c","Layers":["a"]},{"Config":"d","Layers":["a"]}])");
      },
      {"2 images", "docker save"});
  for (const char* text : {"[]", "{}", R"([{"Layers":["a"]}])", R"([{"Config":"c"}])",
                           R"([{"Config":"c","Layers":[]}])", R"([{"Config":"c","Layers":[1]}])"}) {
    expect_refusal<SandboxImageInvalid>([&] { parse_archive_manifest(text); });
  }
}

}  // namespace
}  // namespace casemate::images
