#include "casemate/images/reference.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::images {
namespace {

using namespace std::string_literals;

const std::string kDigest = "sha256:" + std::string(64, 'a');

std::string text_of(std::string_view text) { return parse_image_reference(text).text; }

TEST(ImageReference, ARegistryReferenceHasOneSpelling) {
  EXPECT_EQ(text_of("python"), "docker.io/library/python:latest");
  EXPECT_EQ(text_of("python:3.13-slim"), "docker.io/library/python:3.13-slim");
  EXPECT_EQ(text_of("index.docker.io/library/python"), "docker.io/library/python:latest");
  EXPECT_EQ(text_of("me/tool"), "docker.io/me/tool:latest");
  EXPECT_EQ(text_of("localhost/a"), "localhost/a:latest");
  EXPECT_EQ(text_of("localhost:5000/a:b"), "localhost:5000/a:b");
  EXPECT_EQ(text_of("ghcr.io/a/b__c/d--e.f_g"), "ghcr.io/a/b__c/d--e.f_g:latest");
  EXPECT_EQ(text_of("python:3@" + kDigest), "docker.io/library/python@" + kDigest);
}

TEST(ImageReference, ADigestCountsAndATagBesideItDoesNot) {
  const ImageReference reference = parse_image_reference("quay.io/a/b:c@" + kDigest);
  EXPECT_EQ(reference.form, ImageForm::registry);
  EXPECT_EQ(reference.repository, "quay.io/a/b");
  EXPECT_EQ(reference.tag, "");
  EXPECT_EQ(reference.digest, kDigest);
}

TEST(ImageReference, AnIdNamesAnImageOfTheStore) {
  EXPECT_EQ(parse_image_reference(kDigest).id, kDigest);
  for (const std::size_t digits : {12U, 63U}) {
    const std::string begun = "sha256:" + std::string(digits, 'a');
    const ImageReference reference = parse_image_reference(begun);
    EXPECT_EQ(reference.id, begun);
    EXPECT_EQ(reference.repository, "");
  }
}

TEST(ImageReference, WhatBeginsLikeAnIdIsNeverOneOfARegistry) {
  for (const std::string& text :
       {"sha256:"s, "sha256:latest"s, "sha256:5000/a"s, "sha256:"s + std::string(11, 'a'),
        "sha256:"s + std::string(65, 'a'), "sha256:"s + std::string(12, 'A'),
        "sha256:"s + std::string(12, 'g'), kDigest + "@" + kDigest}) {
    expect_refusal<InvalidArgument>([&] { parse_image_reference(text); }, {"12 to 64", "image ls"});
  }
}

TEST(ImageReference, APathIsKeptAsItWasGiven) {
  EXPECT_EQ(parse_image_reference("host").form, ImageForm::host);
  EXPECT_EQ(parse_image_reference("dir:/srv/a:b").path, "/srv/a:b");
  EXPECT_EQ(parse_image_reference("docker-archive:a:b.tar").path, "a:b.tar");
  EXPECT_EQ(parse_image_reference("oci:/srv/a").tag, "");
  EXPECT_EQ(parse_image_reference("oci:/srv/a:3.13").path, "/srv/a");
  EXPECT_EQ(parse_image_reference("oci:/srv/a:3.13").tag, "3.13");
  EXPECT_EQ(parse_image_reference("oci:/srv/a:b/c").path, "/srv/a:b/c");
}

TEST(ImageReference, WhatFitsNoFormIsRefused) {
  for (const std::string& text : {""s,
                                  "dir:"s,
                                  "oci:"s,
                                  "oci::tag"s,
                                  "oci:/a:"s,
                                  "oci:/a:-b"s,
                                  "docker-archive:"s,
                                  "dir:/a\0b"s,
                                  "-python"s,
                                  "Python"s,
                                  "python:"s,
                                  "python:-3"s,
                                  "python::3"s,
                                  "a//b"s,
                                  "a/"s,
                                  "/a"s,
                                  "a/../b"s,
                                  "./a"s,
                                  "a..b"s,
                                  "a___b"s,
                                  "a.-b"s,
                                  "a b"s,
                                  "a\nb"s,
                                  "docker://python"s,
                                  "python@"s,
                                  "python@sha256:abc"s,
                                  "python@sha512:"s + std::string(64, 'a'),
                                  "python@sha256:"s + std::string(64, 'A'),
                                  "host:port/a"s,
                                  "host:123456/a"s,
                                  ":5000/a"s,
                                  "a:"s + std::string(129, 'b'),
                                  std::string(250, 'a')}) {
    EXPECT_THROW(parse_image_reference(text), InvalidArgument) << text;
  }
  EXPECT_NO_THROW(parse_image_reference("a:" + std::string(128, 'b')));
}

}  // namespace
}  // namespace casemate::images
