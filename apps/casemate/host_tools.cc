#include "apps/casemate/host_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "apps/casemate/host_command.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

// White space around an answer, a newline at its end for example, is no part of it.
constexpr std::size_t kSpaceBytes = 64 * 1024;

// Bytes of all answers of one run.
constexpr std::uint64_t kMaxAnswersBytes = 32 * kMiB;
constexpr std::uint64_t kFewAnswers = 64;

std::string_view without_space_around(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

// For the registry to refuse in its own words: a value of so many bytes as JSON, more than may be
// delivered.
boost::json::value too_large(std::size_t bytes) {
  constexpr std::size_t kQuotes = 2;
  return boost::json::string(std::max(bytes, kMaxAnswerBytes + 1) - kQuotes, ' ');
}

// Answers one call of a command. What is thrown here is logged; the program learns only that the
// tool failed.
class Command {
 public:
  Command(std::string name, std::string command, Log log)
      : name_(std::move(name)), command_(std::move(command)), log_(std::move(log)) {}

  boost::json::value operator()(const boost::json::object& arguments,
                                const HostToolContext& context) const {
    const HostCommandResult result = run_host_command(command_, serialise_json(arguments),
                                                      kMaxAnswerBytes + kSpaceBytes, context.stop);
    const std::string_view errors = without_space_around(result.errors);
    switch (result.end) {
      case HostCommandResult::End::stopped:
        throw std::runtime_error("it was killed: its time was over, or its run" + said(errors));
      case HostCommandResult::End::too_much:
        write_log(log_, LogLevel::info,
                  fmt::format("host tool '{}' was killed: it went on printing after {} bytes",
                              escape_for_display(name_), kMaxAnswerBytes + kSpaceBytes));
        return too_large(result.output.size());
      case HostCommandResult::End::exited:
        break;
    }
    if (result.status != 0) {
      throw std::runtime_error(fmt::format("exit status {}{}", result.status, said(errors)));
    }
    if (!errors.empty()) {
      write_log(log_, LogLevel::info,
                fmt::format("host tool '{}' says: {}", escape_for_display(name_),
                            escape_for_display(errors, kKeptErrorBytes)));
    }
    const std::string_view printed = without_space_around(result.output);
    if (printed.empty()) {
      throw std::runtime_error("it printed nothing, and has to print one JSON value" +
                               said(errors));
    }
    if (printed.size() > kMaxAnswerBytes) return too_large(printed.size());
    try {
      return parse_json(printed);
    } catch (const JsonError& error) {
      throw std::runtime_error(
          fmt::format("what it printed is not one JSON value: {}{}", error.what(), said(errors)));
    }
  }

 private:
  static std::string said(std::string_view errors) {
    if (errors.empty()) return {};
    return fmt::format("; it said: {}", escape_for_display(errors, kKeptErrorBytes));
  }

  std::string name_;
  std::string command_;
  Log log_;
};

// "FILE:LINE: " of what a refusal is about; `own` is empty where the tool says nothing of it.
std::string place_of(const HostToolSetting& setting, const std::string& own) {
  const std::string& where = own.empty() ? setting.where : own;
  return where.empty() ? "" : where + ": ";
}

// The registry's own words for them; they have a line of their own.
bool is_about_parameters(const InvalidArgument& refused) {
  return refused.message().starts_with("the parameters of host tool");
}

HostTool make_tool(const HostToolSetting& setting, const HostToolSettings& settings,
                   const Log& log) {
  HostTool tool;
  tool.name = setting.name;
  tool.description = setting.description;
  tool.function = Command(setting.name, setting.command, log);
  tool.parameters = setting.parameters;
  tool.declaration = setting.declaration;
  tool.timeout = setting.timeout.value_or(settings.timeout);
  tool.max_concurrency = setting.max_concurrency;
  return tool;
}

}  // namespace

std::shared_ptr<HostToolRegistry> make_host_tools(const HostToolSettings& settings,
                                                  const Log& log) {
  if (settings.tools.empty()) return nullptr;
  HostToolRegistryOptions options;
  options.require_declared = settings.require_declared ? RequireDeclared::yes : RequireDeclared::no;
  options.max_host_tool_calls_per_run = settings.max_calls;
  // The number of calls is what bounds the number of answers.
  options.response_limits = {kMaxAnswerBytes, kMaxAnswersBytes,
                             std::max(settings.max_calls, kFewAnswers)};
  if (log) {
    // A refusal is logged where it is made, with why.
    options.observer = [log](const HostToolEvent& event) {
      return [log, name = std::string(event.name)](const HostToolAnswer& answer) {
        if (!answer.ok()) return;
        write_log(log, LogLevel::info,
                  fmt::format("host tool '{}' answered {} bytes", escape_for_display(name),
                              answer.text().size()));
      };
    };
  }
  auto registry = std::make_shared<HostToolRegistry>(std::move(options));
  for (const HostToolSetting& setting : settings.tools) {
    try {
      registry->register_tool(make_tool(setting, settings, log));
    } catch (const HostToolNotDeclared& refused) {
      throw HostToolNotDeclared(
          refused.message(),
          "stamp it in casemate.toml ([host_tools.NAME] with command, source, sink and identity), "
          "or leave out --require-declared");
    } catch (const HostToolIdentityNotAllowed& refused) {
      // The hint speaks of a registry's options; here nobody's identity can be allowed.
      throw HostToolIdentityNotAllowed(
          place_of(setting, setting.identity_where) + refused.message(),
          "give identity = \"app\" or \"none\"");
    } catch (const InvalidArgument& refused) {
      if (setting.where.empty()) throw;
      if (!is_about_parameters(refused)) {
        throw ConfigInvalid(place_of(setting, {}) + refused.message(), refused.hint());
      }
      throw ConfigInvalid(place_of(setting, setting.parameters_where) + refused.message(),
                          "leave out what cannot be held and have the command check it; "
                          "docs/host-tools.md lists the keywords that are held");
    }
  }
  return registry;
}

void refuse_denied_host_tools(const HostToolSettings& settings, const std::set<Identity>& denied) {
  for (const HostToolSetting& tool : settings.tools) {
    const std::optional<Identity> identity =
        tool.declaration ? tool.declaration->identity.get() : std::optional(Identity::app);
    if (!identity || !denied.contains(*identity)) continue;
    throw SandboxIdentityDenied(
        fmt::format("{}host tool '{}' acts under {}, which --deny-identity denies{}",
                    place_of(tool, tool.identity_where), escape_for_display(tool.name),
                    to_string(*identity), tool.declaration ? "" : "; what is not stamped does"),
        "leave out --deny-identity or the host tool; in casemate.toml identity = \"none\" says of "
        "a "
        "tool that it uses no authority");
  }
}

}  // namespace casemate::app
