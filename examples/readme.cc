#include <iostream>
#include <memory>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"

int main() {
  const casemate::SandboxRouter router({std::make_shared<casemate::LinuxBackend>()},
                                       {.min_isolation = casemate::Isolation::container});
  const casemate::CallerContext caller{[] { return "tenant-7"; }, [] { return "chat-1"; }};
  const casemate::Log log = [](auto, auto text) { std::cerr << text << '\n'; };  // the reasons why
  for (const casemate::Tool& tool :
       casemate::make_codeact_tools(router, "analyst", caller, {.log = log})) {
    const casemate::ToolResult result = tool.invoke(R"-({"code": "print(6 * 7)"})-", {});
    std::cout << result.text << '\n';
  }
  router.dispose_scope("tenant-7", "chat-1");
}
