// `casemate run`.

#include <cstdlib>
#include <optional>
#include <string>

#include "apps/casemate/run_options.h"
#include "apps/casemate/run_program.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"

namespace casemate::app {

namespace {

std::optional<std::string> host_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

int run(const ParsedLine& line) {
  const RunOptions options = read_run_options(line, host_variable);
  const Log log = make_log(line);
  return run_program(options, make_backends(log), log);
}

}  // namespace casemate::app
