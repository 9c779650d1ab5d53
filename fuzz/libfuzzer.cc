// libFuzzer's entry for the target that CASEMATE_FUZZ_TARGET names.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    casemate::fuzz::CASEMATE_FUZZ_TARGET(
        std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const casemate::fuzz::Broken& broken) {
    std::fprintf(stderr, "does not hold: %s\n", broken.sentence.c_str());
    std::abort();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "a target let an exception out: %s\n", failure.what());
    std::abort();
  }
  return 0;
}
