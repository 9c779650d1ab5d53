// What is told while an image comes.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/images/packed.h"
#include "casemate/images/store_fixture_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::images {
namespace {

using testing::ElementsAre;

constexpr std::size_t kMi = 1 << 20;

class StoreProgress : public Store {
 protected:
  struct Told {
    std::string step;
    ProgressPhase phase;
    std::uint64_t done;
    std::uint64_t total;
  };
  // That step, in its order, and whether it is told as one: from nothing to all, never backwards
  // and never over all.
  std::vector<Told> told_of(std::string_view beginning) const {
    std::vector<Told> found;
    std::ranges::copy_if(told_, std::back_inserter(found),
                         [&](const Told& told) { return told.step.starts_with(beginning); });
    for (std::size_t at = 0; at < found.size(); ++at) {
      EXPECT_EQ(found[at].phase == ProgressPhase::begun, at == 0);
      EXPECT_EQ(found[at].phase == ProgressPhase::ended, at + 1 == found.size());
      EXPECT_GE(found[at].done, at == 0 ? 0 : found[at - 1].done);
      if (found[at].total > 0) {
        EXPECT_LE(found[at].done, found[at].total);
      }
    }
    return found;
  }
  std::vector<std::string> steps() const {
    std::vector<std::string> found;
    for (const Told& told : told_) {
      if (told.phase == ProgressPhase::begun) found.push_back(told.step);
    }
    return found;
  }
  ProgressSink sink() {
    return [this](const Progress& progress) {
      told_.push_back({std::string(progress.step), progress.phase, progress.done, progress.total});
    };
  }
  ImageStoreOptions telling() {
    ImageStoreOptions own = options();
    own.progress = sink();
    return own;
  }
  // What no compression makes smaller.
  static std::string noise(std::size_t bytes) {
    std::mt19937 random(1);  // NOLINT: the same each time
    std::string text(bytes, '\0');
    for (char& byte : text) byte = static_cast<char>(random());
    return text;
  }
  void expect_bytes_within(const std::string& step, std::uint64_t size) const {
    const std::vector<Told> told = told_of(step);
    ASSERT_GE(told.size(), 2 + size / kMi / 2) << step;
    for (const Told& each : told) EXPECT_EQ(each.total, size) << step;
    EXPECT_EQ(told.back().done, size) << step;
  }
  // Opens when the other end has come to it too.
  void let_go_on() const { std::ofstream(scratch_ / "fifo") << "on\n"; }
  static CallControl with_patience() {
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    return control;
  }

  std::vector<Told> told_;
};

TEST_F(StoreProgress, OfAnOciLayoutIsTheBytesOfEachLayerAsItLies) {
  const std::string upper = TarBuilder().file("large", noise(6 * kMi)).finish();
  image_.add(gzip(upper), upper);
  const std::string plain = TarBuilder().file("plain", noise(3 * kMi)).finish();
  image_.add(plain);
  image_.write_oci_layout(scratch_ / "layout");
  ImageStore(telling()).hold(oci(), {});
  EXPECT_THAT(steps(), ElementsAre("unpacking layer 1 of 3", "unpacking layer 2 of 3",
                                   "unpacking layer 3 of 3", "writing to disk"));
  expect_bytes_within("unpacking layer 2 of 3", image_.layers.at(1).size());
  expect_bytes_within("unpacking layer 3 of 3", plain.size());
  told_of("writing");
}

TEST_F(StoreProgress, OfADockerArchiveIsTheBytesOfItToo) {
  image_.add(TarBuilder().file("large", noise(6 * kMi)).finish());
  for (const std::string& bytes : {image_.old_docker_archive(), image_.new_docker_archive()}) {
    ImageStore(telling()).hold(parse_image_reference(write_archive(bytes)), {});
    EXPECT_THAT(steps(), ElementsAre("reading the archive", "unpacking layer 1 of 2",
                                     "unpacking layer 2 of 2", "writing to disk"));
    expect_bytes_within("reading the archive", bytes.size());
    expect_bytes_within("unpacking layer 2 of 2", image_.layers.at(1).size());
    fs::remove_all(directory());
    told_.clear();
  }
  const std::string bytes = gzip(image_.new_docker_archive());
  ImageStore(telling()).hold(parse_image_reference(write_archive(bytes)), {});
  expect_bytes_within("looking through the archive", bytes.size());
  expect_bytes_within("reading the archive", bytes.size());
  ImageStore(telling()).check(parse_image_reference(write_archive(bytes)), {});
  EXPECT_EQ(std::ranges::count(steps(), "looking through the archive"), 1)
      << "a look costs no line";
}

TEST_F(StoreProgress, OfARegistryIsWhatSkopeoHasWrittenSoFar) {
  image_.write_oci_layout(scratch_ / "layout", "image");
  ASSERT_EQ(mkfifo((scratch_ / "fifo").c_str(), 0600), 0);
  // As it does: under a name for the time being first.
  const std::string wait = "read line < " + (scratch_ / "fifo").native() + "\n";
  write_skopeo("mkdir -p download/blobs/sha256\ntruncate -s 2M download/oci-put-blob1\n" + wait +
               "truncate -s 5M download/oci-put-blob1\n" + wait +
               "rm download/oci-put-blob1\ncp -r " + (scratch_ / "layout").native() +
               "/. download\n");
  ImageStoreOptions own = telling();
  own.progress = [this, next = 2 * kMi, told = sink()](const Progress& progress) mutable {
    told(progress);
    if (!progress.step.starts_with("fetching") || progress.done != next) return;
    next = 5 * kMi;
    if (progress.phase == ProgressPhase::going) let_go_on();
  };
  ImageStore(own).hold(parse_image_reference("python:3"), with_patience());
  const std::vector<Told> told = told_of("fetching docker.io/library/python:3");
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[1].done, 2 * kMi);
  EXPECT_EQ(told[2].done, 5 * kMi);
  EXPECT_EQ(told[2].total, 0U) << "nobody said yet how much it will be";
  EXPECT_EQ(steps().back(), "writing to disk");
}

TEST_F(StoreProgress, OfPackingIsWhatIsPackedSoFar) {
  ASSERT_EQ(mkfifo((scratch_ / "fifo").c_str(), 0600), 0);
  write_test_file(scratch_ / "mksquashfs", "#!/bin/sh\ntruncate -s 2M \"$2\"\nread line < " +
                                               (scratch_ / "fifo").native() + "\n");
  fs::permissions(scratch_ / "mksquashfs", fs::perms::owner_all);
  image_.write_oci_layout(scratch_ / "layout");
  const PackedImages packed({.directory = directory().native(),
                             .mksquashfs = (scratch_ / "mksquashfs").native(),
                             .progress = [this, told = sink()](const Progress& progress) {
                               told(progress);
                               if (progress.phase == ProgressPhase::going) let_go_on();
                             }});
  packed.hold(ImageStore(options()).hold(oci(), {}), with_patience());
  const std::vector<Told> told = told_of("packing");
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[1].done, 2 * kMi);
}

TEST_F(StoreProgress, NeverPassesTheWholeOfAFileThatGrowsWhileItIsRead) {
  image_.add(TarBuilder().file("large", noise(4 * kMi)).finish());
  image_.write_oci_layout(scratch_ / "layout");
  const std::string blob = (scratch_ / "layout/blobs/sha256" / sha256_hex(image_.layers.at(1)));
  ImageStoreOptions own = options();
  own.progress = [&, told = sink()](const Progress& progress) {
    told(progress);
    if (progress.step != "unpacking layer 2 of 2" || progress.phase != ProgressPhase::begun) return;
    std::ofstream(blob, std::ios::app | std::ios::binary) << noise(4 * kMi);
  };
  expect_refusal<SandboxImageInvalid>([&] { ImageStore(own).hold(oci(), {}); }, "its digest says");
  ASSERT_GT(told_.size(), 4U);
  for (const Told& told : told_) EXPECT_LE(told.done, told.total) << told.step;
}

TEST_F(StoreProgress, RepeatsNothingThatAnImageSays) {
  const std::string odd = "\33]0;title\7\33[2J" + std::string(80, 'x');
  TestImage image;
  image.add(TarBuilder().file("a").file(odd).symbolic_link("b", odd).finish());
  std::string archive = image.old_docker_archive();
  ImageStore(telling()).hold(parse_image_reference(write_archive(archive)), {});
  for (const Told& told : told_) {
    EXPECT_THAT(told.step, testing::MatchesRegex("[a-z0-9 ]+"));
  }
}

TEST_F(StoreProgress, ThatThrowsEndsTheWorkAndLeavesNothing) {
  image_.add(TarBuilder().file("large", noise(4 * kMi)).finish());
  ImageStoreOptions own = options();
  own.progress = [](const Progress& progress) {
    if (progress.phase == ProgressPhase::going) throw std::runtime_error("enough");
  };
  image_.write_oci_layout(scratch_ / "layout");
  const std::string archive = write_archive(image_.new_docker_archive());
  for (const std::string& text : {"oci:" + (scratch_ / "layout").native(), archive}) {
    EXPECT_THROW(ImageStore(own).hold(parse_image_reference(text), {}), std::runtime_error);
    EXPECT_EQ(entries_in("images"), 0U);
    expect_nothing_left();
  }
}

}  // namespace
}  // namespace casemate::images
