// That nothing survives, whoever is killed and whenever: lives of a host with its sandboxes.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/images/store.h"
#include "casemate/images/tar_builder_test.h"
#include "tests/linux/copied_program.h"
#include "tests/soak/soak.h"
#include "tests/support/scratch.h"

namespace casemate::soak {
namespace {

using linux_tests::shell;
namespace fs = std::filesystem;

const SandboxKey kKey{"scope", "thread", "agent"};

void live_once(local::LocalBackend& host, const SandboxSpec& wanted) {
  const auto sandbox = acquire_surely(host, kKey, wanted);
  print(*sandbox, "(setsid sleep 1000 &); echo x > ../../left");
  host.dispose(kKey);
}

// LC-04
TEST_F(Soak, AHostThatIsKilledAtAnySystemCallLeavesNothing) {
  for (const SandboxSpec& each : {spec(), kept_spec()}) {
    kill_at_any_step(Victim::host, live_once, {each});
  }
}

// LC-04
TEST_F(Soak, AKeeperThatIsKilledAtAnySystemCallLeavesNothingAndItsHostGoesOn) {
  for (const SandboxSpec& each : {spec(), kept_spec()}) {
    kill_at_any_step(Victim::keeper, live_once, {each});
  }
}

// One host makes a sandbox and leaves it idle, with a program that stays; another finds it and
// calls so often that calls are opened ahead.
class AdoptionSoak : public Soak {
 protected:
  void live_with_adoption(local::LocalBackend& host, Victim victim) {
    {
      const auto before = make_host();
      const auto sandbox = acquire_surely(*before, key(), kept_spec());
      ExecRequest stays = shell("exec sleep 1000");
      stays.lifetime = Lifetime::sandbox;
      sandbox->open_call({}, {})->start(stays, {});
    }
    const auto sandbox = acquire_surely(host, key(), kept_spec());
    if (victim == Victim::host && !sandbox->info().reused) {
      throw std::runtime_error("the idle sandbox was not found");
    }
    for (int call = 0; call < 4; ++call) print(*sandbox, "true");
    // Its wish counts from now on: it lives for as long as it is used.
    acquire_surely(host, key(), spec());
    host.dispose(key());
  }
};

// LC-04
TEST_F(AdoptionSoak, AHostThatIsKilledWhileItUsesWhatAnotherLeftIdleLeavesNothing) {
  kill_at_any_step(Victim::host,
                   [&](auto& host, const auto&) { live_with_adoption(host, Victim::host); });
}

// LC-04
TEST_F(AdoptionSoak, AKeeperThatIsKilledUnderAnIdleSandboxLeavesNothingAndTheNextHostGoesOn) {
  kill_at_any_step(Victim::keeper,
                   [&](auto& host, const auto&) { live_with_adoption(host, Victim::keeper); });
}

// A snapshot is taken, restored beside its sandbox and in its place.
class SnapshotSoak : public Soak {
 protected:
  static void live_with_snapshots(local::LocalBackend& host, const SandboxSpec& wanted) {
    print(*acquire_surely(host, key(), wanted), "echo kept > ~/file");
    const SandboxSnapshot taken = host.snapshot(key(), wanted.kind, {});
    // Beside it, and in its place.
    for (const char* thread : {"twin", "thread"}) {
      const auto restored = host.restore(key(thread), wanted, taken.id, {});
      if (print(*restored, "cat ~/file") != "kept\n") throw std::runtime_error("not restored");
    }
    host.dispose_snapshot(taken.id);
    host.dispose(key("twin"));
    host.dispose_scope(key().scope, key().thread_id);
  }
  // What is published is whole.
  void after_life(const Stepped& stepped, const std::string& when) override {
    if (!stepped.killed) return;
    try {
      EXPECT_EQ(print(*another_backend()->attach(key("twin"), spec().kind, {}), "cat ~/file"),
                "kept\n")
          << when;
      ++twins_;
    } catch (const NoSuchSandbox&) {
      // Not made yet, not meant to be kept, or disposed.
    }
  }
  int twins_ = 0;
};

// LC-04
TEST_F(SnapshotSoak, AHostThatIsKilledWhileItSnapshotsAndRestoresLeavesNothing) {
  kill_at_any_step(Victim::host, live_with_snapshots);
  EXPECT_GT(twins_, 0) << "no kill left a restored sandbox";
}

// LC-04
TEST_F(SnapshotSoak, AKeeperThatIsKilledUnderSnapshotsLeavesNothingAndItsHostGoesOn) {
  kill_at_any_step(Victim::keeper, live_with_snapshots);
}

// Of an image of the store, which was imported before.
class ImageUseSoak : public Soak {
 protected:
  void SetUp() override {
    Soak::SetUp();
    if (IsSkipped()) return;
    const fs::path root = scratch_ / "root";
    linux_tests::copy_program("/bin/sh", root);
    images::TarBuilder layer;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_directory()) continue;
      layer.file(entry.path().lexically_relative(root).native(), get(entry.path()), 0755);
    }
    for (const char* name : {"bin", "lib", "lib64"}) {
      layer.symbolic_link(name, std::string("usr/") + name);
    }
    images::TestImage().add(layer.finish()).write_oci_layout(scratch_ / "layout");
    images::ImageStore(images()).import(images::parse_image_reference(reference()), {});
    fs::remove_all(root);
  }

  std::string reference() const { return "oci:" + (scratch_ / "layout").native(); }
  images::ImageStoreOptions images() const { return {.directory = scratch_ / "store"}; }
  std::vector<fs::path> directories() const override { return {state(), scratch_.path()}; }
  std::unique_ptr<local::LocalBackend> make_host() const override {
    return linux_tests::make_backend({.state_dir = state(), .log = {}, .images = images()});
  }

  void live_of_image(local::LocalBackend& host, SandboxSpec wanted) const {
    wanted.image = reference();
    live_once(host, wanted);
  }
  // A sandbox of a host that was killed may still live here: it goes first.
  void expect_image_not_in_use() {
    const auto images = images::ImageStore(this->images()).list();
    ASSERT_EQ(images.size(), 1U);
    EXPECT_FALSE(images[0].in_use);
  }

 private:
  Scratch scratch_;
};

// LC-04
TEST_F(ImageUseSoak, AHostThatIsKilledWhileItUsesAnImageLeavesNothingThatHoldsIt) {
  kill_at_any_step(Victim::host,
                   [&](auto& host, const auto& wanted) { live_of_image(host, wanted); });
  expect_image_not_in_use();
}

// LC-04
TEST_F(ImageUseSoak, AKeeperThatIsKilledUnderAnImageLeavesNothingAndItsHostGoesOn) {
  kill_at_any_step(Victim::keeper,
                   [&](auto& host, const auto& wanted) { live_of_image(host, wanted); });
  expect_image_not_in_use();
}

}  // namespace
}  // namespace casemate::soak
