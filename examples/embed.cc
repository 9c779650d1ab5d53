// A host that embeds CodeAct. Its own session decides in whose sandbox a program runs.
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"

// What a host has anyway.
struct Session {
  std::string user = "user-17";
  std::string conversation = "conversation-4";
};

int main(int argc, char** argv) try {
  const Session session;
  // What goes wrong stands here and nowhere else: a model learns only that nothing could be run.
  const casemate::Log log = [](casemate::LogLevel level, std::string_view text) {
    if (level >= casemate::LogLevel::warning) std::cerr << text << '\n';
  };
  casemate::LinuxBackendOptions options;
  options.state_dir = argc > 1 ? argv[1] : "";  // of its sandboxes; empty: /run/casemate
  options.log = log;
  const casemate::SandboxRouter router(
      {std::make_shared<casemate::LinuxBackend>(options)},
      {.min_isolation = casemate::Isolation::container, .log = log});

  // The wiring test: throws the refusal, with both sides and the fix, and starts nothing.
  router.ensure_can_serve(casemate::codeact_sandbox_spec());

  const casemate::CallerContext caller{
      .current_scope = [&] { return session.user; },
      .current_thread_id = [&] { return session.conversation; },
  };
  const auto tools = casemate::make_codeact_tools(router, "assistant", caller, {.log = log});

  std::shared_ptr<const casemate::ScopeDisposal> disposal;
  {
    const auto scope = router.scope(session.user, session.conversation);
    disposal = scope.disposal();
    // In an agent the model chooses the tool and writes the arguments.
    for (const char* arguments : {R"-({"code": "print(sum(n * n for n in range(10)))"})-",
                                  R"-({"code": "import nothing"})-"}) {
      const casemate::ToolResult result = tools.at(0).invoke(arguments, {});
      std::cout << result.text << "\n\n";
      if (result.is_error) return 1;  // no program ran; one that failed is an ordinary result
    }
  }
  std::cout << "sandboxes disposed: " << disposal->disposed() << '\n';
  return 0;
} catch (const casemate::SandboxError& refusal) {
  std::cerr << refusal.code() << ": " << refusal.message() << '\n' << refusal.hint() << '\n';
  return 1;
}
