// A guest program over plain directories: `casemate-place-guest ROOT` serves one call on descriptor
// 3, with its directory below ROOT/workspace, and ends with it. It draws no boundary of its own: to
// be started within one, and in tests (as plain_guest).

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
  std::fprintf(stderr, "casemate-place-guest: %s\n", error.what());
  return 2;
}
