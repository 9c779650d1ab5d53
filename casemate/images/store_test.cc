#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/images/packed.h"
#include "casemate/images/store_fixture_test.h"
#include "casemate/sys/process.h"
#include "tests/support/expect_refusal.h"

namespace casemate::images {
namespace {

using testing::ElementsAre;

TEST_F(Store, AnOciLayoutIsUnpackedOnceAndHeld) {
  const std::string upper = TarBuilder().file("etc/a", "upper").file("bin/.wh.tool", "").finish();
  image_.add(gzip(upper), upper);
  image_.environment = {"PATH=/bin", "A=b"};
  const std::string id = image_.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  const HeldImage held = store.hold(oci(), {});
  EXPECT_EQ(held.identity, id);
  EXPECT_EQ(held.environment.at("PATH"), "/bin");
  EXPECT_EQ(read(held, "etc/a"), "upper");
  EXPECT_EQ(read(held, "bin/tool"), "(none)");
  EXPECT_EQ(read(store.hold(parse_image_reference(id), {}), "etc/a"), "upper");
  EXPECT_EQ(store.hold(parse_image_reference(id.substr(0, 19)), {}).identity, id);
  EXPECT_EQ(read(ImageStore(options()).hold(oci(), {}), "etc/a"), "upper");
  EXPECT_EQ(count_steps("writing"), 1);
  expect_nothing_left();
}

TEST_F(Store, TheBeginningOfAnIdIsLookedUpHereAndNowhereElse) {
  write_skopeo("exit 1\n");
  ImageStoreOptions own = options();
  own.skopeo = (scratch_ / "skopeo").native();
  ImageStore store(own);
  expect_refusal<SandboxImageInvalid>(
      [&] { store.hold(parse_image_reference("sha256:0123456789ab"), {}); },
      {"no image 'sha256:0123456789ab'", "image ls", "image import"});
  const std::string both(63, '0');
  for (const char last : {'0', '1'}) fs::create_directories(directory() / "images" / (both + last));
  const std::string one = "sha256:" + both + "0";
  const std::string other = "sha256:" + both + "1";
  const std::string beginning(12, '0');
  expect_refusal<InvalidArgument>(
      [&] { store.hold(parse_image_reference("sha256:" + beginning), {}); },
      {"2 images", one, other, "more of the id"});
  for (const std::string& name : {beginning, "sha256:" + beginning, both}) {
    expect_refusal<InvalidArgument>([&] { store.remove(name); }, {one, other, "more of the id"});
  }
  EXPECT_EQ(entries_in("images"), 2U);
  EXPECT_FALSE(fs::exists(scratch_ / "calls"));
}

TEST_F(Store, ACheckFindsWhatCanBeUsedAndImportsNothing) {
  image_.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  for (const std::string& text :
       {std::string("host"), std::string("dir:/usr"), "oci:" + (scratch_ / "layout").native(),
        write_archive(image_.new_docker_archive()), std::string("python:3.13-slim")}) {
    EXPECT_NO_THROW(store.check(parse_image_reference(text), {})) << text;
  }
  EXPECT_FALSE(fs::exists(directory()));
  EXPECT_NO_THROW(store.check(parse_image_reference(store.import(oci(), {}).id), {}));
}

TEST_F(Store, BothShapesOfADockerArchiveAreTaken) {
  image_.add(TarBuilder().file("b").finish());
  image_.add(image_.tars.front());  // once more, as a link
  for (const std::string& bytes : {image_.old_docker_archive(), image_.new_docker_archive(),
                                   gzip(image_.new_docker_archive())}) {
    ImageStore store(options());
    const HeldImage held = store.hold(parse_image_reference(write_archive(bytes)), {});
    EXPECT_EQ(held.identity, digest_of(image_.config()));
    EXPECT_EQ(read(held, "etc/a"), "lower");
    EXPECT_EQ(read(held, "b"), "x");
    expect_nothing_left();
    fs::remove_all(directory());
  }
}

TEST_F(Store, EveryDigestIsChecked) {
  image_.write_oci_layout(scratch_ / "layout");
  std::vector<fs::path> blobs;
  for (const auto& entry : fs::directory_iterator(scratch_ / "layout/blobs/sha256")) {
    blobs.push_back(entry.path());
  }
  ASSERT_EQ(blobs.size(), 3U);
  for (const fs::path& blob : blobs) {
    std::ifstream file(blob, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    file.close();
    std::string changed = bytes;
    changed[changed.find("lower") == changed.npos ? changed.size() - 1 : changed.find("lower")] =
        ' ';
    for (const std::string& wrong : {changed, bytes + " "}) {
      write_test_file(blob, wrong);
      ImageStore store(options());
      expect_refusal<SandboxImageInvalid>([&] { store.hold(oci(), {}); }, "its digest says");
      if (fs::exists(directory())) {
        EXPECT_EQ(entries_in("images"), 0U);
        expect_nothing_left();
      }
    }
    fs::remove(blob);
    ImageStore store(options());
    expect_refusal<SandboxImageInvalid>([&] { store.hold(oci(), {}); }, "cannot be read");
    write_test_file(blob, bytes);
  }
  EXPECT_NO_THROW(ImageStore(options()).hold(oci(), {}));
}

TEST_F(Store, AConfigOfADockerArchiveIsHeldAgainstTheDigestThatItIsNamedBy) {
  const auto archive = [&](const std::string& config) {
    TarBuilder tar;
    tar.file("layer.tar", image_.layers.front()).file(config, image_.config());
    tar.file("manifest.json",
             R"([{"Config":")" + config + R"(","RepoTags":null,"Layers":["layer.tar"]}])");
    return write_archive(tar.finish());
  };
  ImageStore store(options());
  const std::string other(64, '0');
  for (const std::string& config : {other, other + ".json", "blobs/sha256/" + other}) {
    expect_refusal<SandboxImageInvalid>(
        [&] { store.hold(parse_image_reference(archive(config)), {}); }, "digest");
  }
  EXPECT_EQ(store.hold(parse_image_reference(archive("c.json")), {}).identity,
            digest_of(image_.config()));
}

TEST_F(Store, ALayerOfADockerArchiveIsHeldAgainstTheConfig) {
  TestImage other = image_;
  other.layers.front() = TarBuilder().file("other").finish();
  for (const std::string& bytes : {other.old_docker_archive(), other.new_docker_archive()}) {
    ImageStore store(options());
    expect_refusal<SandboxImageInvalid>(
        [&] { store.hold(parse_image_reference(write_archive(bytes)), {}); }, "its digest says");
    expect_nothing_left();
  }
  // The config by another name than its digest.
  std::string renamed = image_.old_docker_archive();
  const std::string hex = sha256_hex(image_.config());
  for (auto at = renamed.find(hex); at != renamed.npos; at = renamed.find(hex)) {
    renamed.replace(at, 2, hex.starts_with("00") ? "11" : "00");
  }
  ImageStore store(options());
  EXPECT_THROW(store.hold(parse_image_reference(write_archive(renamed)), {}), SandboxImageInvalid);
}

TEST_F(Store, LinksAmongMembersEndAndLeadToMembersOnly) {
  write_test_file(scratch_ / "secret.tar", TarBuilder().file("secret").finish());
  const std::string outside = (scratch_ / "secret.tar").native();
  const std::string hex = sha256_hex(image_.config());
  const auto archive = [&](const std::string& target) {
    TarBuilder tar;
    tar.symbolic_link("l/layer.tar", target).file(hex + ".json", image_.config());
    tar.file("manifest.json",
             fmt::format(R"([{{"Config":"{}.json","Layers":["l/layer.tar"]}}])", hex));
    return write_archive(tar.finish());
  };
  ImageStore store(options());
  for (const std::string& target : {std::string("layer.tar"), outside,
                                    "../../../../../../../.." + outside, std::string("../none")}) {
    expect_refusal<SandboxImageInvalid>(
        [&] { store.hold(parse_image_reference(archive(target)), {}); }, "");
  }
}

TEST_F(Store, WhatIsNotThereOrNoImageIsNamed) {
  ImageStore store(options());
  write_test_file(scratch_ / "layout/index.json", "{}");
  write_test_file(scratch_ / "text", "no archive, but long enough to be one");
  for (const std::string& text :
       {"oci:" + (scratch_ / "missing").native(), "oci:" + (scratch_ / "text").native(),
        "oci:" + (scratch_ / "layout").native(),
        "docker-archive:" + (scratch_ / "missing").native(),
        "docker-archive:" + (scratch_ / "layout").native(),
        "docker-archive:" + (scratch_ / "text").native(), std::string("docker-archive:/dev/zero"),
        "dir:" + (scratch_ / "missing").native(), "dir:" + (scratch_ / "text").native(),
        std::string("dir:/"), "sha256:" + std::string(64, '0')}) {
    expect_refusal<SandboxImageInvalid>([&] { store.hold(parse_image_reference(text), {}); });
    expect_refusal<SandboxImageInvalid>([&] { store.check(parse_image_reference(text), {}); });
  }
  EXPECT_THROW(store.hold(parse_image_reference("host"), {}), InvalidArgument);
  EXPECT_THROW(store.import(parse_image_reference("dir:/usr"), {}), InvalidArgument);
}

TEST_F(Store, ADirectoryIsUsedWhereItIs) {
  write_test_file(scratch_ / "root/etc/a", "own");
  ImageStore store(options());
  const auto reference = parse_image_reference("dir:" + (scratch_ / "root").native());
  const HeldImage held = store.hold(reference, {});
  EXPECT_EQ(read(held, "etc/a"), "own");
  EXPECT_EQ(held.identity, store.hold(reference, {}).identity);
  fs::rename(scratch_ / "root", scratch_ / "before");
  fs::create_directories(scratch_ / "root");
  EXPECT_NE(held.identity, store.hold(reference, {}).identity);
  EXPECT_FALSE(fs::exists(directory()));
}

TEST_F(Store, AHostileArchiveLeavesNothing) {
  TestImage hostile;
  hostile.add(TarBuilder().file("a").file("../b").finish());
  hostile.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  expect_refusal<SandboxImageInvalid>([&] { store.hold(oci(), {}); },
                                      {"'../b'", "layer 1", "leads outside"});
  EXPECT_EQ(entries_in("images"), 0U);
  EXPECT_EQ(entries_in("references"), 0U);
  expect_nothing_left();
  EXPECT_FALSE(fs::exists(directory() / "b"));
}

TEST_F(Store, TheBoundsHoldForAllLayersTogether) {
  const std::string lower = TarBuilder().file("a", std::string(4096, 'a')).finish();
  TestImage image;
  image.add(lower).add(TarBuilder().file("b", std::string(4096, 'b')).finish());
  image.write_oci_layout(scratch_ / "layout");
  ImageStoreOptions bounded = options();
  bounded.bounds = {.max_bytes = 2 * lower.size(), .max_entries = 2};
  EXPECT_NO_THROW(ImageStore(bounded).hold(oci(), {}));
  fs::remove_all(directory());
  bounded.bounds.max_bytes -= 1;
  expect_refusal<SandboxImageInvalid>([&] { ImageStore(bounded).hold(oci(), {}); }, "unpacked");
  bounded.bounds = {.max_bytes = 2 * lower.size(), .max_entries = 1};
  expect_refusal<SandboxImageInvalid>([&] { ImageStore(bounded).hold(oci(), {}); }, "entries");
  expect_nothing_left();
}

TEST_F(Store, ALayersFileIsBoundedTooNotOnlyWhatItUnpacksTo) {
  const std::string tar = TarBuilder().file("a", std::string(4096, 'a')).finish();
  ImageStoreOptions bounded = options();
  bounded.bounds = {.max_bytes = std::size_t{1} << 20U, .max_entries = 10};
  const auto import = [&](const std::string& layer) {
    TestImage image;
    image.add(layer, tar);
    fs::remove_all(scratch_ / "layout");
    image.write_oci_layout(scratch_ / "layout");
    fs::remove_all(directory());
    ImageStore(bounded).hold(oci(), {});
  };
  // Nothing is made of either: of zeros behind gzip's last member, and of a frame to skip of
  // zstd's.
  const std::string zeros(std::size_t{3} << 20U, '\0');
  const std::string skipped = std::string("\x50\x2a\x4d\x18\x00\x00\x30\x00", 8) + zeros;
  expect_refusal<SandboxImageInvalid>([&] { import(gzip(tar) + zeros); }, "its file has more than");
  expect_nothing_left();
  expect_refusal<SandboxImageInvalid>([&] { import(zstd(tar) + skipped); },
                                      "its file has more than");
  expect_nothing_left();
  EXPECT_NO_THROW(import(gzip(tar) + zeros.substr(0, 10'000)));
  EXPECT_NO_THROW(import(zstd(tar)));
}

TEST_F(Store, ConcurrentImportersDoItOnce) {
  image_.write_oci_layout(scratch_ / "layout");
  std::atomic<int> unpacked = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      ImageStoreOptions own = options();
      own.progress = [&](const Progress& progress) {
        unpacked += progress.step == "writing to disk" && progress.phase == ProgressPhase::ended;
      };
      EXPECT_EQ(read(ImageStore(own).hold(oci(), {}), "etc/a"), "lower");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unpacked, 1);
  expect_nothing_left();
}

TEST_F(Store, AnImageInUseStaysAndOneThatIsNotGoes) {
  const std::string id = image_.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  {
    const HeldImage held = store.hold(oci(), {});
    ASSERT_EQ(store.list().size(), 1U);
    EXPECT_TRUE(store.list().front().in_use);
    expect_refusal<SandboxBusy>([&] { ImageStore(options()).remove(id); }, "in use");
    EXPECT_TRUE(store.remove_unused().empty());
    EXPECT_EQ(read(held, "etc/a"), "lower");
  }
  const StoredImage listed = store.list().front();
  EXPECT_EQ(listed.id, id);
  EXPECT_FALSE(listed.in_use);
  EXPECT_EQ(listed.layers, 1U);
  EXPECT_EQ(listed.files, 2U);
  EXPECT_EQ(listed.bytes, 6U);
  EXPECT_THAT(listed.references, ElementsAre("oci:" + (scratch_ / "layout").native()));
  expect_refusal<SandboxImageInvalid>([&] { store.remove(id.substr(0, 18)); }, "no image");
  EXPECT_EQ(store.remove(id.substr(0, 19)).id, id);
  expect_refusal<SandboxImageInvalid>([&] { store.remove(id); }, "no image");
  EXPECT_EQ(entries_in("images") + entries_in("references"), 0U);
  expect_nothing_left();
  store.import(oci(), {});
  EXPECT_EQ(store.remove("oci:" + (scratch_ / "layout").native()).id, id);
  store.import(oci(), {});
  EXPECT_EQ(store.remove_unused().size(), 1U);
}

TEST_F(Store, WhatIsPackedOfAnImageGoesWithItAlsoAfterAKillInBetween) {
  image_.write_oci_layout(scratch_ / "layout");
  write_test_file(scratch_ / "mksquashfs", "#!/bin/sh\necho packed > \"$2\"\n");
  fs::permissions(scratch_ / "mksquashfs", fs::perms::owner_all);
  const PackedImages packed(
      {.directory = directory().native(), .mksquashfs = (scratch_ / "mksquashfs").native()});
  ImageStore store(options());
  const auto pack = [&] { return packed.hold(store.hold(oci(), {}), {}).path; };
  const std::string path = pack();
  store.list();
  EXPECT_TRUE(fs::exists(path));
  store.remove("oci:" + (scratch_ / "layout").native());
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(pack(), path);
  store.remove_unused();
  EXPECT_FALSE(fs::exists(path));
  pack();
  // As a kill leaves it.
  fs::remove_all(directory() / "images");
  fs::create_directory(directory() / "images");
  fs::permissions(directory() / "images", fs::perms::owner_all);
  ImageStore(options()).list();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Store, AProcessThatGotTheDescriptorKeepsTheImage) {
  image_.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  pid_t child = -1;
  {
    const HeldImage held = store.hold(oci(), {});
    child = fork();
    if (child == 0) {
      close(go[1]);
      char byte;
      _exit(::read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  EXPECT_TRUE(store.list().front().in_use);
  close(go[0]);
  close(go[1]);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(store.list().front().in_use);
}

TEST_F(Store, WhatAKilledImporterLeftIsSweptAndWhatALiveOneMakesIsNot) {
  image_.write_oci_layout(scratch_ / "layout");
  ImageStore store(options());
  EXPECT_TRUE(store.list().empty());
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    ImageStoreOptions own = options();
    own.progress = [&](const Progress& progress) {
      if (progress.step != "writing to disk") return;
      static_cast<void>(!write(ready[1], "x", 1));
      pause();
    };
    try {
      ImageStore(own).import(oci(), {});
    } catch (...) {
    }
    _exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(store.list().empty());
  EXPECT_EQ(entries_in("new"), 1U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(entries_in("new"), 1U);
  EXPECT_TRUE(store.list().empty());
  expect_nothing_left();
  EXPECT_NO_THROW(store.import(oci(), {}));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(Store, FilesThatKilledProcessesWereWritingAreSweptWhereverTheStoreWrites) {
  ImageStore store(options());
  EXPECT_TRUE(store.list().empty());
  for (const char* part : {"", "references", "packed"}) {
    const fs::path path = directory() / part;
    fs::create_directories(path);
    write_test_file(path / ".casemate-0123456789abcdef", "half");
    EXPECT_TRUE(store.list().empty());
    EXPECT_FALSE(fs::exists(path / ".casemate-0123456789abcdef")) << path;
  }
}

TEST_F(Store, AStopRequestLeavesNothing) {
  image_.write_oci_layout(scratch_ / "layout");
  std::stop_source source;
  ImageStoreOptions own = options();
  own.progress = [&](const Progress& progress) {
    if (progress.step.starts_with("unpacking")) source.request_stop();
  };
  ImageStore store(own);
  EXPECT_THROW(store.hold(oci(), {.deadline = {}, .stop = source.get_token()}), SandboxCancelled);
  EXPECT_EQ(entries_in("images"), 0U);
  expect_nothing_left();
}

TEST_F(Store, ADirectoryThatOthersCanReachIsRefused) {
  fs::create_directories(directory());
  fs::permissions(directory(), static_cast<fs::perms>(0755));
  image_.write_oci_layout(scratch_ / "layout");
  expect_refusal<SandboxUnavailable>([&] { ImageStore(options()).hold(oci(), {}); },
                                     {"mode 755", "ImageStoreOptions::directory"});
  fs::remove_all(directory());
  fs::create_directory_symlink(scratch_.path(), directory());
  EXPECT_THROW(ImageStore(options()).hold(oci(), {}), SandboxUnavailable);
}

TEST_F(Store, ARegistryIsAskedOnceAndAgainByAnImport) {
  const std::string id = image_.write_oci_layout(scratch_ / "layout", "image");
  write_skopeo("cp -r " + (scratch_ / "layout").native() + " download\n");
  ImageStore store(options());
  const auto reference = parse_image_reference("python:3");
  EXPECT_EQ(store.hold(reference, {}).identity, id);
  EXPECT_EQ(store.hold(reference, {}).identity, id);
  std::ifstream calls(scratch_ / "calls");
  std::string call;
  std::getline(calls, call);
  EXPECT_EQ(call,
            "copy --quiet --override-os linux docker://docker.io/library/python:3 "
            "oci:download:image");
  EXPECT_FALSE(std::getline(calls, call));
  EXPECT_EQ(store.import(reference, {}).references,
            std::vector<std::string>{"docker.io/library/python:3"});
  EXPECT_EQ(store.remove("python:3").id, id);
  expect_nothing_left();
}

TEST_F(Store, SkopeoThatFailsOrIsMissingIsARefusalWithWhatToDo) {
  ImageStore store(options());
  const auto reference = parse_image_reference("example.org/a");
  expect_refusal<SandboxImageNotSupported>([&] { store.hold(reference, {}); },
                                           {"skopeo", "apt-get install -y skopeo"});
  write_skopeo("echo 'unauthorized: \33[31mno' >&2; exit 3\n");
  expect_refusal<SandboxUnavailable>([&] { store.hold(reference, {}); },
                                     {"exit 3", "unauthorized: \\x1b[31mno"});
  write_skopeo("mkdir download; echo '{}' > download/index.json\n");
  expect_refusal<SandboxImageInvalid>([&] { store.hold(reference, {}); }, "index");
  expect_nothing_left();
}

TEST_F(Store, AStopRequestEndsAFetchAndItsWholeGroup) {
  write_skopeo("sleep 1000 & echo $! > " + (scratch_ / "pid").native() + "; echo > " +
               (scratch_ / "fifo").native() + "; wait\n");
  ASSERT_EQ(mkfifo((scratch_ / "fifo").c_str(), 0600), 0);
  std::stop_source source;
  // Opening returns when the script has come to its own.
  std::thread stopper([&] {
    std::ifstream started(scratch_ / "fifo");
    std::string line;
    std::getline(started, line);
    source.request_stop();
  });
  ImageStore store(options());
  EXPECT_THROW(store.hold(parse_image_reference("example.org/a"),
                          {.deadline = {}, .stop = source.get_token()}),
               SandboxCancelled);
  stopper.join();
  int pid = 0;
  std::ifstream(scratch_ / "pid") >> pid;
  ASSERT_GT(pid, 0);
  try {
    const sys::UniqueFd process = sys::open_pid(pid);
    EXPECT_TRUE(sys::wait_ended(process.get(),
                                std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  } catch (const std::system_error& gone) {
    EXPECT_EQ(gone.code().value(), ESRCH);
  }
  expect_nothing_left();
}

}  // namespace
}  // namespace casemate::images
