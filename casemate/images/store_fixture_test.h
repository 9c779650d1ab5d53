#pragma once

// A store of the test's own, and images to bring into it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/images/store.h"
#include "casemate/images/tar_builder_test.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/scratch.h"

namespace casemate::images {

namespace fs = std::filesystem;

class Store : public testing::Test {
 protected:
  Store() { image_.add(TarBuilder().file("etc/a", "lower").file("bin/tool", "x", 0755).finish()); }

  fs::path directory() const { return scratch_ / "store"; }
  ImageStoreOptions options() {
    ImageStoreOptions options;
    options.directory = directory().native();
    options.skopeo = (scratch_ / "skopeo").native();
    options.progress = [this](const Progress& progress) {
      if (progress.phase == ProgressPhase::begun) steps_.emplace_back(progress.step);
    };
    options.clocks = [this] { return clocks_; };
    return options;
  }
  ImageReference oci(const std::string& name = "layout") const {
    return parse_image_reference("oci:" + (scratch_ / name).native());
  }
  std::string write_archive(const std::string& bytes) const {
    write_test_file(scratch_ / "image.tar", bytes);
    return "docker-archive:" + (scratch_ / "image.tar").native();
  }

  static std::string read(const HeldImage& image, const std::string& name) {
    const sys::UniqueFd file(openat(image.root.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
    char bytes[64];
    const ssize_t count = file ? ::read(file.get(), bytes, sizeof bytes) : -1;
    return count < 0 ? "(none)" : std::string(bytes, static_cast<std::size_t>(count));
  }
  std::size_t entries_in(const std::string& name) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory() / name), fs::directory_iterator()));
  }
  void expect_nothing_left() const {
    EXPECT_EQ(entries_in("new"), 0U);
    EXPECT_EQ(entries_in("trash"), 0U);
  }
  long count_steps(std::string_view beginning) const {
    return std::ranges::count_if(
        steps_, [&](const std::string& step) { return step.starts_with(beginning); });
  }

  // A `skopeo` that copies the layout instead of asking a registry, and notes how it was called.
  void write_skopeo(const std::string& script) const {
    write_test_file(scratch_ / "skopeo",
                    "#!/bin/sh\necho \"$@\" >> " + (scratch_ / "calls").native() + "\n" + script);
    fs::permissions(scratch_ / "skopeo", fs::perms::owner_all);
  }

  Scratch scratch_;
  TestImage image_;
  std::vector<std::string> steps_;
  Clocks clocks_ = read_clocks();
};

}  // namespace casemate::images
