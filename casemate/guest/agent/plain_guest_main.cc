// A guest program over plain directories, for tests: `plain_guest ROOT` serves one call on
// descriptor 3.

#include <unistd.h>

#include <cstdio>
#include <exception>

#include "casemate/guest/agent/plain_place.h"
#include "casemate/guest/agent/serve_call.h"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  casemate::guest::PlainPlace place(argv[1]);
  _exit(casemate::guest::serve_call(casemate::sys::UniqueFd(3), place));
} catch (const std::exception& error) {
  std::fprintf(stderr, "plain_guest: %s\n", error.what());
  return 2;
}
