// A host tool from C++: a program asks for prices while it runs.
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/host_tools/typed.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"

namespace {

struct PriceQuery {
  std::string item;
  static auto fields() {  // of these the schema is made that a program's arguments have to fit
    return std::tuple(casemate::field("item", &PriceQuery::item, "what is sold"));
  }
};

double price(const PriceQuery& query) { return query.item == "tea" ? 4.2 : 1.5; }

std::shared_ptr<casemate::HostToolRegistry> make_host_tools() {
  auto tool = casemate::typed_host_tool<PriceQuery>("price", "The price of an item.", price);
  tool.declaration = {.source = casemate::SourceIntegrity::trusted,  // a list of the host's own
                      .sink = std::nullopt,                          // carries nothing out
                      .identity = std::nullopt};                     // uses no authority
  tool.timeout = std::chrono::seconds(5);
  const auto registry = std::make_shared<casemate::HostToolRegistry>(
      casemate::HostToolRegistryOptions{.require_declared = casemate::RequireDeclared::yes});
  registry->register_tool(std::move(tool));
  return registry;
}

}  // namespace

int main() {
  const casemate::SandboxRouter router({std::make_shared<casemate::LinuxBackend>()},
                                       {.min_isolation = casemate::Isolation::container});
  const casemate::CallerContext caller{[] { return "tenant-7"; }, [] { return "chat-1"; }};
  const casemate::Log log = [](auto, auto text) { std::cerr << text << '\n'; };
  for (const casemate::Tool& tool : casemate::make_codeact_tools(
           router, "analyst", caller, {.host_tools = make_host_tools(), .log = log})) {
    const char* arguments =
        R"-({"code": "import casemate_tools; print(casemate_tools.price(item='tea'))"})-";
    std::cout << tool.invoke(arguments, {}).text << '\n';
  }
  router.dispose_scope("tenant-7", "chat-1");
}
