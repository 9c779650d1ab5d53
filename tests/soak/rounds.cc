#include "tests/soak/rounds.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string_view>

namespace casemate::soak {

bool whole() {
  const char* value = std::getenv("CASEMATE_SOAK");
  return value != nullptr && std::string_view(value) == "1";
}

int rounds(int all) { return whole() ? all : all / 10; }

const char* given_seed() { return std::getenv("CASEMATE_SOAK_SEED"); }

int first_step(int stride) {
  if (stride == 1) return 0;
  const int first = given_seed() != nullptr
                        ? std::atoi(given_seed()) % stride
                        : static_cast<int>(std::random_device()() % static_cast<unsigned>(stride));
  std::cout << "every " << stride << "th step from step " << first
            << "; CASEMATE_SOAK_SEED=" << first << " tries the same again\n";
  return first;
}

}  // namespace casemate::soak
