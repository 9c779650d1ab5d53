// That an importer which is killed at any system call leaves an image whole or not at all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "casemate/images/packed.h"
#include "casemate/images/store.h"
#include "casemate/images/tar_builder_test.h"
#include "tests/soak/rounds.h"
#include "tests/soak/stepped_process.h"
#include "tests/support/scratch.h"

namespace casemate::soak {
namespace {

namespace fs = std::filesystem;
using images::ImageStore;
using images::StoredImage;

void write_executable(const fs::path& path, const std::string& script) {
  put(path, script);
  fs::permissions(path, fs::perms::owner_all);
}

class ImageSoak : public testing::Test {
 protected:
  ImageSoak() {
    images::TestImage image;
    image.add(images::TarBuilder()
                  .file("etc/a", "lower")
                  .file("usr/bin/tool", "x", 0755)
                  .symbolic_link("bin", "usr/bin")
                  .finish());
    image.add(images::TarBuilder().file("etc/a", "upper").file("etc/.wh.b", "").finish());
    id_ = image.write_oci_layout(scratch_ / "layout");
  }
  void SetUp() override { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0); }
  void TearDown() override { prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); }

  images::ImageReference reference() const {
    return images::parse_image_reference("oci:" + (scratch_ / "layout").native());
  }
  images::ImageStoreOptions options() const {
    images::ImageStoreOptions options;
    options.directory = (scratch_ / "store").native();
    return options;
  }
  // Names of files that were being written, anywhere in the store.
  std::vector<std::string> staged() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "store")) {
      if (entry.path().filename().native().starts_with(".casemate-")) found.push_back(entry.path());
    }
    return found;
  }
  std::size_t entries_in(const char* name) const {
    // Beside how long they were unused.
    return static_cast<std::size_t>(std::count_if(
        fs::directory_iterator(scratch_ / "store" / name), fs::directory_iterator(),
        [](const fs::directory_entry& entry) { return entry.path().filename() != ".idle.json"; }));
  }

  Scratch scratch_;
  std::string id_;
};

// LC-04
TEST_F(ImageSoak, AnImporterThatIsKilledAtAnySystemCallLeavesAWholeImageOrNone) {
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  bool came = false;
  bool did_not_come = false;
  for (int step = first_step(stride);; step += stride) {
    fs::remove_all(scratch_ / "store");
    const Stepped stepped = run_and_kill(Victim::host, {step}, [&] {
      ImageStore store(options());
      store.import(reference(), {});
      store.remove(id_);
    });
    ASSERT_TRUE(wait_for_descendants(20)) << step;
    ImageStore store(options());
    const auto found = store.list();
    EXPECT_EQ(entries_in("new") + entries_in("trash"), 0U) << "after a sweep, at step " << step;
    EXPECT_THAT(staged(), testing::IsEmpty()) << "after a sweep, at step " << step;
    EXPECT_EQ(entries_in("images"), found.size()) << "one without a record, at step " << step;
    (found.empty() ? did_not_come : came) = true;
    // Whatever there was: it can be run from, and removed.
    const auto held = store.hold(reference(), {});
    EXPECT_EQ(held.identity, id_) << step;
    const fs::path root = scratch_ / "store" / "images" / id_.substr(7) / "root";
    EXPECT_EQ(get(root / "etc/a"), "upper") << step;
    EXPECT_EQ(get(root / "bin/tool"), "x") << step;
    if (HasFailure()) return;
    if (!stepped.killed) {
      EXPECT_EQ(stepped.status, 0);
      break;
    }
    ++killed;
  }
  EXPECT_TRUE(came && did_not_come);
  EXPECT_GT(killed * stride, 100);
}

TEST_F(ImageSoak, APackerThatIsKilledAtAnySystemCallLeavesAWholeFileOrNone) {
  write_executable(scratch_ / "mksquashfs", "#!/bin/sh\necho half > \"$2\"; echo whole > \"$2\"\n");
  const images::PackedImages packed({.directory = (scratch_ / "store").native(),
                                     .mksquashfs = (scratch_ / "mksquashfs").native()});
  fs::create_directories(scratch_ / "root/etc");
  const auto directory = images::parse_image_reference("dir:" + (scratch_ / "root").native());
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  for (int step = first_step(stride);; step += stride) {
    fs::remove_all(scratch_ / "store");
    const Stepped stepped = run_and_kill(Victim::host, {step}, [&] {
      ImageStore store(options());
      packed.hold(store.hold(directory, {}), {});
      packed.hold(store.hold(reference(), {}), {});
      store.remove(id_);
    });
    ASSERT_TRUE(wait_for_descendants(20)) << step;
    ImageStore store(options());
    const std::size_t images = store.list().size();
    EXPECT_THAT(staged(), testing::IsEmpty()) << "after a sweep, at step " << step;
    const bool was_begun = fs::exists(scratch_ / "store/packed");
    if (was_begun) {
      std::size_t of_images = 0;
      for (const auto& entry : fs::directory_iterator(scratch_ / "store/packed")) {
        if (entry.path().filename() == ".idle.json") continue;
        EXPECT_EQ(get(entry.path()), "whole\n") << entry.path() << " at step " << step;
        of_images += entry.path().filename().native().starts_with("image-") ? 1 : 0;
      }
      EXPECT_LE(of_images, images) << "of one that is gone, at step " << step;
    }
    for (const auto& each : {directory, reference()}) {
      EXPECT_EQ(get(packed.hold(store.hold(each, {}), {}).path), "whole\n") << step;
    }
    EXPECT_EQ(entries_in("packed"), 2U) << "something was left, at step " << step;
    if (HasFailure()) return;
    if (!stepped.killed) {
      EXPECT_EQ(stepped.status, 0);
      break;
    }
    ++killed;
  }
  EXPECT_GT(killed * stride, 100);
}

}  // namespace
}  // namespace casemate::soak
