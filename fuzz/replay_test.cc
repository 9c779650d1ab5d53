// The seeds of fuzz/corpus, one by one through their targets: what a fuzzer once started from or
// found holds in every build, without a fuzzer.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

const std::filesystem::path kCorpus = "fuzz/corpus";  // tests start in the root of the tree

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> seeds_of(std::string_view target) {
  std::vector<std::filesystem::path> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target)) {
    seeds.push_back(entry.path());
  }
  std::ranges::sort(seeds);
  return seeds;
}

class FuzzCorpus : public testing::TestWithParam<NamedTarget> {};

TEST_P(FuzzCorpus, HoldsForEverySeed) {
  const std::vector<std::filesystem::path> seeds = seeds_of(GetParam().name);
  EXPECT_GE(seeds.size(), 3U);
  for (const std::filesystem::path& seed : seeds) {
    SCOPED_TRACE(seed);
    try {
      GetParam().run(contents_of(seed));
    } catch (const Broken& broken) {
      ADD_FAILURE() << broken.sentence;
    }
  }
}

// Cut short at every place, and with each of its bytes turned: what a fuzzer tries first.
TEST_P(FuzzCorpus, HoldsForEverySeedCutOrTurned) {
  for (const std::filesystem::path& seed : seeds_of(GetParam().name)) {
    SCOPED_TRACE(seed);
    const std::string whole = contents_of(seed);
    const std::size_t step = 1 + whole.size() / 64;
    try {
      for (std::size_t at = 0; at < whole.size(); at += step) {
        GetParam().run(std::string_view(whole).substr(0, at));
        std::string turned = whole;
        turned[at] = static_cast<char>(turned[at] ^ static_cast<char>(1 << (at % 8)));
        GetParam().run(turned);
      }
    } catch (const Broken& broken) {
      ADD_FAILURE() << broken.sentence;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

TEST(FuzzTargets, AreThoseThatHaveSeeds) {
  std::set<std::string> with_seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    with_seeds.insert(entry.path().filename());
  }
  std::set<std::string> named;
  for (const NamedTarget& target : kTargets) named.emplace(target.name);
  EXPECT_EQ(with_seeds, named);
}

}  // namespace
}  // namespace casemate::fuzz
