#include "casemate/tool/tool.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/tool/implementation.h"
#include "casemate/tool/refusals.h"

namespace casemate {
namespace {

// Remembers what a listener threw, so that it can be told from a failure of the tool's own after it
// went through layers that do not know the difference.
class ListenerFailure {
 public:
  template <typename... Arguments>
  std::function<void(Arguments...)> watch(const std::function<void(Arguments...)>& listener) {
    if (!listener) return {};
    return [this, &listener](Arguments... arguments) {
      try {
        listener(arguments...);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        throw;
      }
    };
  }

  void rethrow_if_any() const {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

ToolResult refused(const Tool::Implementation& tool, const std::exception& failure) {
  write_log(tool.log, LogLevel::warning, fmt::format("{}: {}", tool.name, line_for_log(failure)));
  ToolResult result;
  result.text = sentence_for_model(failure);
  result.structured = serialise_json({
      {"status", failure_status(failure)},
      {"error",
       {{"code", failure_code(failure)},
        {"message", without_error_prefix(result.text)},
        {"hint", ""}}},
  });
  result.is_error = true;
  return result;
}

}  // namespace

std::string_view to_string(ApprovalMode value) {
  return value == ApprovalMode::always_require ? "always_require" : "never_require";
}

Tool::Tool(std::shared_ptr<const Implementation> implementation)
    : implementation_(std::move(implementation)) {}

const std::string& Tool::name() const { return implementation_->name; }
const std::string& Tool::description() const { return implementation_->description; }
const std::string& Tool::parameters() const { return implementation_->parameters.text(); }
ApprovalMode Tool::approval_mode() const { return implementation_->approval_mode; }
const ToolDeclarations& Tool::declarations() const { return implementation_->declarations; }

ToolResult Tool::invoke(std::string_view arguments, const ToolCall& call) const {
  ListenerFailure listeners;
  ToolCall watched = call;
  watched.progress = listeners.watch(call.progress);
  watched.on_output = listeners.watch(call.on_output);
  try {
    return implementation_->run(implementation_->parameters.check(arguments), watched);
  } catch (const std::exception& failure) {
    listeners.rethrow_if_any();
    return refused(*implementation_, failure);
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being cancelled
  } catch (...) {
    listeners.rethrow_if_any();
    return refused(*implementation_,
                   std::runtime_error("something was thrown that is no std::exception"));
  }
}

Tool make_tool(ToolParts parts) {
  if (!parts.run) throw InvalidArgument(fmt::format("tool '{}' has nothing to run", parts.name));
  return Tool(std::make_shared<const Tool::Implementation>(Tool::Implementation{
      .name = std::move(parts.name),
      .description = std::move(parts.description),
      .parameters = ToolParameters::parse(parts.parameters),
      .approval_mode = parts.approval_mode,
      .declarations = std::move(parts.declarations),
      .log = std::move(parts.log),
      .run = std::move(parts.run),
  }));
}

}  // namespace casemate
