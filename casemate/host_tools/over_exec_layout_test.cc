#include "casemate/host_tools/over_exec_layout.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

TEST(GuestRunLayout, NormalisesTheRunDirectoryAndKeepsEverythingInIt) {
  const GuestRunLayout layout = guest_run_layout("/workspace//x/../0123456789ab/");
  EXPECT_EQ(layout.run_directory(), "/workspace/0123456789ab");
  EXPECT_EQ(layout.work_directory(), "/workspace/0123456789ab/work");
  EXPECT_EQ(layout.program(), "/workspace/0123456789ab/host_tools/program.py");
  EXPECT_EQ(layout.module(), "/workspace/0123456789ab/host_tools/casemate_tools.py");
  EXPECT_EQ(layout.launcher(), "/workspace/0123456789ab/host_tools/run_program.sh");
  EXPECT_EQ(layout.request(1), layout.transport_directory() + "/host_tool_calls/0001.request.json");
  EXPECT_EQ(layout.response(12345),
            layout.transport_directory() + "/host_tool_calls/12345.response.json");
}

TEST(GuestRunLayout, RefusesADirectoryThatIsNotAbsolute) {
  for (const char* directory : {"", ".", "run", "./run", "~/run"}) {
    expect_refusal<InvalidArgument>([&] { guest_run_layout(directory); }, "is not absolute");
  }
}

TEST(GuestRunLayout, RefusesADirectoryThatPythonpathOrAShellWouldReadOtherwise) {
  expect_refusal<InvalidArgument>([] { guest_run_layout("/run/a:b"); }, "contains ':'");
  expect_refusal<InvalidArgument>([] { guest_run_layout("/run/a\\b"); }, "contains a backslash");
  expect_refusal<InvalidArgument>([] { guest_run_layout(std::string("/run/a\0b", 8)); }, "NUL");
  EXPECT_EQ(guest_run_layout("/run/it's $here").run_directory(), "/run/it's $here");
}

TEST(GuestRunLayout, RefusesAProgramThatIsNoPlainFileName) {
  for (const std::string& program :
       {std::string(), std::string("."), std::string(".."), std::string("a/b.py"),
        std::string("/program.py"), std::string("a\\b.py"), std::string("a\0b", 3)}) {
    expect_refusal<InvalidArgument>([&] { guest_run_layout("/run/x", program); },
                                    "is no plain file name");
  }
}

TEST(GuestRunLayout, RefusesTheTransportsOwnNamesForAProgram) {
  for (const char* program :
       {"run_program.sh", "program_stdout.txt", "program_stderr.txt", "host_tool_calls",
        "casemate_tools.py", "program_exit_code", "program_exit_code.part", "program_pid",
        "program_pid.part", "program_session", "program_session.part"}) {
    expect_refusal<InvalidArgument>([&] { guest_run_layout("/run/x", program); },
                                    "one of the transport's own");
  }
}

TEST(GuestRunLayout, RefusesAProgramThatWouldBeImportedInPlaceOfAModule) {
  for (const char* program :
       {"casemate_tools.pyc", "json.py", "os.pyw", "time.so", "json.cpython-311-x86_64.so",
        "casemate_tools.abi3.pyd", "encodings.py", "site.py", "sitecustomize.py",
        "usercustomize.py", "abc.py", "codecs.py", "genericpath.py", "io.py", "posixpath.py",
        "stat.py", "_collections_abc.py", "_sitebuiltins.py", "_bootlocale.py"}) {
    expect_refusal<InvalidArgument>([&] { guest_run_layout("/run/x", program); },
                                    "which others need");
  }
}

TEST(GuestRunLayout, AcceptsAProgramThatAnswersToNoModuleOrToItsOwn) {
  for (const char* program : {"program.py", "json", "json.txt", "json.py.txt", "json.x.py",
                              "my json.py", "Json.py", ".py", "program.part", "program_pid.txt"}) {
    EXPECT_EQ(guest_run_layout("/run/x", program).program_name(), program);
  }
}

}  // namespace
}  // namespace casemate
