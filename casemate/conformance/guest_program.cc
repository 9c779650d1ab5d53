#include "casemate/conformance/guest_program.h"

#include <boost/json.hpp>
#include <utility>

#include "casemate/base/json.h"

namespace casemate::conformance {

void expect_done(Call& call, const CallControl& control, std::string_view step,
                 std::string_view text, std::map<std::string, std::string> environment) {
  ExecRequest request;
  request.command = Argv{{"python3", "-c", std::string(text) + "\nprint('done')\n"}};
  request.environment = std::move(environment);
  const ExecResult seen = call.exec(request, control);
  if (seen.outcome == Outcome::exited && seen.exit_code == 0 && seen.stdout == "done\n") return;
  ExecResult good;
  good.exit_code = 0;
  good.stdout = "done\n";
  throw Unmet(std::string(step), shown(good), shown(seen));
}

std::string json_of(const std::map<std::string, std::string>& entries) {
  boost::json::object object;
  for (const auto& [name, value] : entries) object[name] = value;
  return serialise_json(object);
}

}  // namespace casemate::conformance
