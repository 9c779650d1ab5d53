#include "casemate/kinds/codeact/result_text.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/capture.h"
#include "casemate/kinds/codeact/shown_streams.h"

namespace casemate::codeact {
namespace {

constexpr std::string_view kNothingPrinted =
    "The program ran and printed nothing. Only what it prints comes back: print what you need.";

void append_section(std::string& text, std::string_view section) {
  if (section.empty()) return;
  if (!text.empty()) text += "\n\n";
  text += section;
}

std::string stream_section(std::string_view label, const CapturedStream& stream) {
  std::string text = render_stream(stream);
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text.empty() ? text : fmt::format("{}:\n{}", label, text);
}

std::string notes_section(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) {
    text += fmt::format("{}note: {}", text.empty() ? "" : "\n", note);
  }
  return text;
}

std::string saved_section(const CodeactRun& run) {
  if (run.artifacts.empty()) return {};
  const bool failed = run.result.exit_code.value_or(1) != 0;
  std::string text = failed ? "Saved, although the program failed:" : "Saved:";
  for (const LandedArtifact& artifact : run.artifacts) {
    text += fmt::format("\n- {}", artifact.display);
  }
  return text;
}

std::string missing_section(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text = "Not written by the program: ";
  for (const std::string& name : names) {
    text += fmt::format("{}{}", &name == &names.front() ? "" : ", ", escape_for_display(name));
  }
  return text + ".";
}

}  // namespace

std::string result_text(const CodeactRun& run) {
  const ExecResult& result = run.result;
  const ShownStreams streams = shown_streams(run);
  const std::vector<std::string> sections{
      stream_section("stdout", streams.out),
      stream_section("stderr", streams.err),
      result.exit_code.value_or(0) == 0 ? "" : fmt::format("exit code: {}", *result.exit_code),
      notes_section(run.notes),
  };
  std::string text;
  const auto append = [&text](std::string_view section) { append_section(text, section); };
  for (const std::string& section : sections) append(section);
  if (text.empty()) append(kNothingPrinted);
  append(saved_section(run));
  append(missing_section(run.missing_outputs));
  if (run.collect_error) append(run.collect_error->sentence);
  return replace_invalid_utf8(text);
}

std::string lost_run_text(const CodeactRun& run, std::string_view sentence) {
  const ShownStreams streams = shown_streams(run);
  const std::string out = stream_section("stdout", streams.out);
  const std::string err = stream_section("stderr", streams.err);
  std::vector<std::string> notes = run.notes;
  notes.push_back(
      fmt::format("this happened while the program ran. {} What else it did is not known.",
                  out.empty() && err.empty() ? "Nothing that it printed had come by then."
                                             : "Above is what it had printed by then."));
  std::string text(sentence);
  for (const std::string& section : {out, err, notes_section(notes)}) append_section(text, section);
  return replace_invalid_utf8(text);
}

}  // namespace casemate::codeact
