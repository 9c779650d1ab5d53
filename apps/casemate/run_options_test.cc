#include "apps/casemate/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/casemate/verbs.h"
#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

std::optional<std::string> host_variable(const std::string& name) {
  return name == "SET" ? std::optional<std::string>("of the host") : std::nullopt;
}

RunOptions read(std::vector<const char*> words) {
  words.push_back("program.py");
  return read_run_options(parse_line(words, kRunVerb.options), host_variable);
}

template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& refused) {
    return refused.message() + "; " + refused.hint();
  }
  return "nothing was refused";
}

std::string refusal(const std::vector<const char*>& words) {
  return refusal_of([&] { read(words); });
}

TEST(RunOptions, DefaultsAreThoseOfTheSurface) {
  const RunOptions options = read({});
  EXPECT_EQ(options.program, "program.py");
  EXPECT_EQ(options.timeout, std::chrono::seconds(120));
  EXPECT_EQ(options.resources, Resources{});
  EXPECT_EQ(options.files_in, (TransferLimits{8 * kMiB, 32 * kMiB, 64}));
  EXPECT_EQ(options.files_out, (TransferLimits{8 * kMiB, 32 * kMiB, 8}));
  EXPECT_EQ(options.min_isolation, Isolation::container);
  EXPECT_EQ(options.image, "host");
  EXPECT_EQ(options.key.scope, "cli");
  EXPECT_EQ(options.key.agent_dir, "default");
  EXPECT_FALSE(options.json || options.verbose || options.check || options.overwrite ||
               options.forward_stdin || options.manifest);
  EXPECT_NE(options.key.thread_id, read({}).key.thread_id);
  EXPECT_TRUE(options.own_key);
  EXPECT_FALSE(read({"--thread", "t"}).own_key);
}

TEST(RunOptions, MarksBoundsThatAreGivenAsStated) {
  const RunOptions options =
      read({"--memory", "512M", "--pids=4", "--cpus", "0.5", "--disk", "1M"});
  EXPECT_EQ(options.resources.memory_bytes, stated(512 * kMiB));
  EXPECT_EQ(options.resources.pids, stated(4));
  EXPECT_EQ(options.resources.cpu_millis, stated(500));
  EXPECT_EQ(options.resources.disk_bytes, stated(kMiB));
}

TEST(RunOptions, RefusesBoundsUnderWhatCanWorkWithTheRange) {
  EXPECT_THAT(refusal({"--memory", "15M"}), HasSubstr("from 16M"));
  EXPECT_THAT(refusal({"--disk", "1048575"}), HasSubstr("from 1M"));
  EXPECT_THAT(refusal({"--pids", "3"}), HasSubstr("from 4"));
  EXPECT_THAT(refusal({"--timeout", "0"}), HasSubstr("at most 604800"));
}

// CLI-04
TEST(RunOptions, SplitsAFileAtTheFirstEquals) {
  EXPECT_THAT(read({"--file", "a=b=c.txt"}).files, ElementsAre(Pair("a", "b=c.txt")));
  EXPECT_THAT(read({"--file", "/data/x.csv"}).files, ElementsAre(Pair("x.csv", "/data/x.csv")));
  for (const char* text : {"=x", "a=", "", "=", "dir/"}) {
    EXPECT_THAT(refusal({"--file", text}), StartsWith("--file cannot be")) << text;
  }
}

TEST(RunOptions, NeedsADirectoryForOutputs) {
  EXPECT_THAT(refusal({"--output", "x"}), StartsWith("--output needs --out-dir"));
  EXPECT_THAT(refusal({"--manifest"}), StartsWith("--manifest needs --out-dir"));
  EXPECT_THAT(refusal({"--manifest", "--output", "x", "--out-dir", "d"}), HasSubstr("exclude"));
  EXPECT_THAT(refusal({"--output", "x", "--out-dir", ""}), StartsWith("--out-dir is empty"));
  EXPECT_THAT(read({"--output", "-x", "--output", "", "--out-dir", "d"}).outputs,
              ElementsAre("-x", ""));
}

TEST(RunOptions, TakesTheProgramBeforeOrBehindTwoDashes) {
  const auto parse = [](const std::vector<const char*>& words) {
    return read_run_options(parse_line(words, kRunVerb.options), host_variable);
  };
  EXPECT_THAT(parse({"p.py", "--", "-a", "--json"}).arguments, ElementsAre("-a", "--json"));
  const RunOptions behind = parse({"--", "-prog.py", "x"});
  EXPECT_EQ(behind.program, "-prog.py");
  EXPECT_THAT(behind.arguments, ElementsAre("x"));
  EXPECT_EQ(parse({"-"}).program, "-");
  EXPECT_THAT(refusal_of([&] { parse({"p.py", "stray"}); }), HasSubstr("unexpected 'stray'"));
  EXPECT_THAT(refusal_of([&] { parse({"--json"}); }), HasSubstr("no PROGRAM"));
  EXPECT_THAT(refusal_of([&] { parse({""}); }), HasSubstr("PROGRAM is empty"));
  EXPECT_THAT(refusal_of([&] { parse({"-", "--stdin"}); }), HasSubstr("both take standard input"));
}

TEST(RunOptions, PassesTheHostsValueOfAVariableOnlyWhenItIsSet) {
  const RunOptions options =
      read({"--env", "SET", "--env", "A=b=c", "--env", "E=", "--env", "A=last"});
  EXPECT_THAT(options.environment,
              ElementsAre(Pair("A", "last"), Pair("E", ""), Pair("SET", "of the host")));
  EXPECT_THAT(refusal({"--env", "UNSET"}), HasSubstr("'UNSET', which is not set here"));
  EXPECT_THAT(refusal({"--env", ""}), HasSubstr("not set here"));
  EXPECT_THAT(refusal({"--env", "=x"}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(read({}).environment, IsEmpty());
}

TEST(RunOptions, ReadsDenialsLabelsAndTheFloor) {
  const RunOptions options =
      read({"--deny-capability", "files_out", "--deny-identity", "user", "--label", "a=b",
            "--min-isolation", "microvm", "--backend", "linux"});
  EXPECT_THAT(options.denied_capabilities, ElementsAre(Capability::files_out));
  EXPECT_THAT(options.denied_identities, ElementsAre(Identity::user));
  EXPECT_THAT(options.labels, ElementsAre(Pair("a", "b")));
  EXPECT_EQ(options.min_isolation, Isolation::microvm);
  EXPECT_EQ(options.backend, "linux");
  EXPECT_EQ(read({"--min-isolation", "none"}).min_isolation, Isolation::process);
}

TEST(RunOptions, NamesTheNearestOfUnknownValues) {
  EXPECT_THAT(refusal({"--deny-capability", "file_out"}), HasSubstr("the nearest is files_out"));
  EXPECT_THAT(refusal({"--deny-capability", "network"}), HasSubstr("egress"));
  EXPECT_THAT(refusal({"--deny-identity", "usr"}), HasSubstr("the nearest is user"));
  EXPECT_THAT(refusal({"--min-isolation", "contianer"}), HasSubstr("the nearest is container"));
  EXPECT_THAT(refusal({"--label", "a=1", "--label", "a=2"}), HasSubstr("two values"));
}

TEST(RunOptions, RefusesAnEmptyPartOfTheKey) {
  for (const char* name : {"--scope", "--thread", "--agent"}) {
    EXPECT_THAT(refusal({name, ""}), HasSubstr(std::string(name) + " is empty"));
  }
}

TEST(RunOptions, TheDefaultsThatHelpShowsAreThoseInForce) {
  for (const OptionSpec& option : kRunVerb.options) {
    if (option.name == "--timeout" || option.name == "--files-in-limit" ||
        option.name == "--files-out-limit" || option.name == "--image" ||
        option.name == "--min-isolation") {
      const std::string value(option.fallback);
      const RunOptions given = read({option.name.data(), value.c_str()});
      const RunOptions absent = read({});
      EXPECT_EQ(given.timeout, absent.timeout);
      EXPECT_EQ(given.files_in, absent.files_in);
      EXPECT_EQ(given.files_out, absent.files_out);
      EXPECT_EQ(given.image, absent.image);
      EXPECT_EQ(given.min_isolation, absent.min_isolation);
    }
  }
  const RunOptions shown =
      read({"--memory", "512M", "--pids", "128", "--cpus", "1", "--disk", "256M"});
  EXPECT_EQ(shown.resources.memory_bytes.value, Resources{}.memory_bytes.value);
  EXPECT_EQ(shown.resources.pids.value, Resources{}.pids.value);
  EXPECT_EQ(shown.resources.cpu_millis.value, Resources{}.cpu_millis.value);
  EXPECT_EQ(shown.resources.disk_bytes.value, Resources{}.disk_bytes.value);
}

TEST(RunOptions, ReadsHostTools) {
  const HostToolSettings defaults = read({}).host_tools;
  EXPECT_TRUE(defaults.tools.empty());
  EXPECT_EQ(defaults.max_calls, 16U);
  EXPECT_EQ(defaults.timeout, std::chrono::seconds(30));
  EXPECT_FALSE(defaults.require_declared);
  const HostToolSettings given =
      read({"--host-tool", "a=x=1 cat", "--host-tool", "b= true", "--max-host-tool-calls", "7",
            "--host-tool-timeout", "0.5", "--require-declared"})
          .host_tools;
  ASSERT_EQ(given.tools.size(), 2U);
  EXPECT_EQ(given.tools[0].name, "a");
  EXPECT_EQ(given.tools[0].command, "x=1 cat");
  EXPECT_EQ(given.tools[0].declaration, std::nullopt);
  EXPECT_EQ(given.tools[1].command, " true");
  EXPECT_EQ(given.max_calls, 7U);
  EXPECT_EQ(given.timeout, std::chrono::milliseconds(500));
  EXPECT_TRUE(given.require_declared);
}

TEST(RunOptions, RefusesHostToolsThatCannotBe) {
  EXPECT_THAT(refusal({"--host-tool", "cat"}), HasSubstr("--host-tool cannot be 'cat'"));
  EXPECT_THAT(refusal({"--host-tool", "=cat"}), HasSubstr("--host-tool cannot be '=cat'"));
  EXPECT_THAT(refusal({"--host-tool", "a="}), HasSubstr("--host-tool 'a' has no command"));
  EXPECT_THAT(refusal({"--host-tool", "a=x", "--host-tool", "a=y"}),
              HasSubstr("gives 'a' two commands"));
  EXPECT_THAT(refusal({"--max-host-tool-calls", "0"}), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal({"--max-host-tool-calls", "1000001"}), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal({"--host-tool-timeout", "0"}), HasSubstr("--host-tool-timeout cannot be"));
}

}  // namespace
}  // namespace casemate::app
