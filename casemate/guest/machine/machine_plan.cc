#include "casemate/guest/machine/machine_plan.h"

#include <charconv>
#include <stdexcept>

namespace casemate::guest {
namespace {

void put(std::string& text, std::string_view key, std::string_view value) {
  if (value.find('\n') != value.npos || value.find('\0') != value.npos) {
    throw std::invalid_argument("a machine's plan with a line's end in a value");
  }
  text.append(key).append(" ").append(value).append("\n");
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("a machine's plan with something else than a number");
  }
  return value;
}

}  // namespace

std::string encode(const MachinePlan& plan) {
  std::string text;
  put(text, "program", plan.program);
  for (const std::string& argument : plan.arguments) put(text, "argument", argument);
  for (const std::string& argument : plan.fresh_arguments) put(text, "fresh", argument);
  for (const std::string& argument : plan.restored_arguments) put(text, "restored", argument);
  for (const MachinePlan::File& file : plan.files) put(text, "file", file.name + " " + file.path);
  put(text, "programs", std::to_string(plan.program_bytes));
  put(text, "cpu", std::to_string(plan.cpu_millis));
  put(text, "kvm", plan.uses_kvm ? "1" : "0");
  put(text, "saved", plan.saved);
  return text;
}

MachinePlan decode_machine_plan(std::string_view text) {
  MachinePlan plan;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::size_t blank = text.find(' ');
    if (end == text.npos || blank == text.npos || blank > end) {
      throw std::invalid_argument("a machine's plan with a line that is none");
    }
    const std::string_view key = text.substr(0, blank);
    const std::string_view value = text.substr(blank + 1, end - blank - 1);
    text.remove_prefix(end + 1);
    if (key == "program") {
      plan.program = value;
    } else if (key == "argument") {
      plan.arguments.emplace_back(value);
    } else if (key == "fresh") {
      plan.fresh_arguments.emplace_back(value);
    } else if (key == "restored") {
      plan.restored_arguments.emplace_back(value);
    } else if (key == "file") {
      const std::size_t between = value.find(' ');
      if (between == value.npos || between == 0 ||
          value.substr(0, between).find('/') != value.npos) {
        throw std::invalid_argument("a machine's plan with a file of no name");
      }
      plan.files.push_back(
          {std::string(value.substr(0, between)), std::string(value.substr(between + 1))});
    } else if (key == "programs") {
      plan.program_bytes = number_of(value);
    } else if (key == "cpu") {
      plan.cpu_millis = number_of(value);
    } else if (key == "kvm") {
      plan.uses_kvm = number_of(value) != 0;
    } else if (key == "saved") {
      plan.saved = value;
    } else {
      throw std::invalid_argument("a machine's plan with an unknown key");
    }
  }
  return plan;
}

}  // namespace casemate::guest
