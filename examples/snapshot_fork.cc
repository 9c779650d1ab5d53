// One sandbox is prepared once; each program then begins with a copy of what is in it.
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/errors.h"
#include "casemate/policy/router.h"

namespace {

constexpr std::string_view kHelper = R"(import csv
def rows():
    with open("/workspace/data/sales.csv") as file:
        return [(row["month"], int(row["sold"])) for row in csv.DictReader(file)]
)";
constexpr std::string_view kData = "month,sold\nmay,12\njune,30\njuly,21\n";

// What a model might write; the second would spoil it for all that come later.
const std::pair<std::string, std::string> kPrograms[] = {
    {"total", "import sales; print(sum(sold for _, sold in sales.rows()))"},
    {"spoil", "import shutil; shutil.rmtree('/workspace/data'); print('removed')"},
    {"best", "import sales; print(max(sales.rows(), key=lambda row: row[1])[0])"},
};

casemate::ExecRequest python(std::string program) {
  return {.command = casemate::Argv{{"python3", "-c", std::move(program)}},
          .environment = {{"PYTHONPATH", "/workspace/lib"}}};
}

}  // namespace

int main(int argc, char** argv) try {
  casemate::LinuxBackendOptions options;
  options.state_dir = argc > 1 ? argv[1] : "";  // of its sandboxes; empty: /run/casemate
  const casemate::SandboxRouter router({std::make_shared<casemate::LinuxBackend>(options)},
                                       {.min_isolation = casemate::Isolation::container});
  casemate::SandboxSpec spec;
  spec.kind = "sales";
  spec.requires_capabilities.insert(casemate::Capability::snapshot);

  const casemate::SandboxKey prepared{"tenant-7", "prepared", "analyst"};
  const auto scope = router.scope(prepared.scope, prepared.thread_id);
  const auto warm = router.acquire(prepared, spec, {});
  warm->write_file("data/sales.csv", kData, "/workspace", {});
  warm->write_file("lib/sales.py", kHelper, "/workspace", {});
  warm->exec(python("import sales"), {});  // compiled once, for all of them

  for (const auto& [name, program] : kPrograms) {
    const auto own_scope = router.scope(prepared.scope, name);
    const auto fork = router.fork(prepared, {prepared.scope, name, "analyst"}, spec, {});
    const casemate::ExecResult result = fork->exec(python(program), {});
    std::cout << name << ": " << result.stdout << result.stderr;
  }
} catch (const casemate::SandboxError& refusal) {
  std::cerr << refusal.code() << ": " << refusal.message() << '\n' << refusal.hint() << '\n';
  return 1;
}
