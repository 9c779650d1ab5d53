// A kind of one's own: a tool that counts words with `wc`, in the sandbox of whoever asks.
#include <boost/json.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/policy/router.h"
#include "casemate/tool/sandboxed_tool.h"

namespace {

// What the kind needs, once and for every backend: to run a program and to put a file in.
casemate::SandboxSpec word_count_spec() {
  casemate::SandboxSpec spec;
  spec.kind = "word_count";
  spec.requires_capabilities = {casemate::Capability::exec, casemate::Capability::files_in};
  spec.files_in = {.max_bytes_per_file = 65536, .max_total_bytes = 65536, .max_files = 1};
  return spec;
}

casemate::ToolResult count_words(const boost::json::object& arguments,
                                 const casemate::ToolCall& call,
                                 casemate::SandboxToolSession& session) {
  const std::string text(arguments.at("text").as_string());
  // Before anything is asked for: what is over the cap of the spec is refused by its name.
  casemate::TransferTally(session.spec().files_in, "files in").add("text", text.size());

  casemate::GuestCall guest = session.open_call(session.key(), call.control);
  guest.call().write_file("text", text, guest.work_directory(), call.control);
  const casemate::ExecResult result = guest.call().exec(
      {.command = casemate::Argv{{"wc", "-w", "text"}}, .timeout = std::chrono::seconds(10)},
      call.control);
  guest.close();  // ends all of the call; where that cannot be shown, the sandbox goes with it

  if (result.outcome != casemate::Outcome::exited || result.exit_code != 0) {
    return {.text = "The words could not be counted."};
  }
  // A guest's bytes: text only once they were made text.
  return {.text = casemate::replace_invalid_utf8(result.stdout)};
}

std::vector<casemate::Tool> make_word_count(const casemate::SandboxRouter& router,
                                            casemate::CallerContext caller) {
  const auto build = [](const casemate::SandboxSpec&) {
    return casemate::SandboxedToolParts{
        .description = "Counts the words of a text.",
        .parameters = R"({"type": "object", "properties": {"text": {"type": "string"}},
                          "required": ["text"], "additionalProperties": false})",
        .body = count_words};
  };
  return casemate::sandboxed_tool(build, {.router = router,
                                          .context = std::move(caller),
                                          .agent_dir = "assistant",
                                          .spec = word_count_spec(),
                                          .name = "word_count"});
}

}  // namespace

int main() try {
  const casemate::SandboxRouter router({std::make_shared<casemate::LinuxBackend>()},
                                       {.min_isolation = casemate::Isolation::container});
  router.ensure_can_serve(word_count_spec());  // the wiring test: one line, starts nothing
  for (const casemate::Tool& tool :
       make_word_count(router, {[] { return "tenant-7"; }, [] { return "chat-1"; }})) {
    std::cout << tool.invoke(R"({"text": "as many words as are here"})", {}).text;
  }
  router.dispose_scope("tenant-7", "chat-1");
} catch (const casemate::SandboxError& refusal) {
  std::cerr << refusal.code() << ": " << refusal.message() << '\n';
  return 1;
}
