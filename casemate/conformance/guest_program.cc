#include "casemate/conformance/guest_program.h"

#include <utility>

namespace casemate::conformance {

void expect_done(Trial& trial, std::string_view step, std::string_view text,
                 std::map<std::string, std::string> environment) {
  ExecRequest request;
  request.command = Argv{{"python3", "-c", std::string(text) + "\nprint('done')\n"}};
  request.environment = std::move(environment);
  const ExecResult seen = trial.call().exec(request, trial.control());
  if (seen.outcome == Outcome::exited && seen.exit_code == 0 && seen.stdout == "done\n") return;
  ExecResult good;
  good.exit_code = 0;
  good.stdout = "done\n";
  throw Unmet(std::string(step), shown(good), shown(seen));
}

}  // namespace casemate::conformance
