#include "apps/casemate/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/casemate/run_options.h"
#include "apps/casemate/verbs.h"
#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::app {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kBackendsOptions = std::to_array<OptionSpec>({
    {"--json", "", Repeat::refused, "off", "", "--json"},
    kConfigOption,
});
constexpr VerbSpec kBackendsLike = {"backends", "", "", "", kBackendsOptions};
constexpr std::array<const VerbSpec*, 2> kVerbs = {&kRunVerb, &kBackendsLike};

Config parse(std::string_view text) { return parse_config(text, "/c.toml", kVerbs); }

template <typename Refused>
std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Refused& refused) {
    return refused.message() + "; " + refused.hint();
  }
  return "nothing was refused";
}

std::string refusal(std::string_view text) {
  return refusal_of<ConfigInvalid>([&] { parse(text); });
}

// `casemate run WORDS program.py` with this file.
RunOptions run_options(std::string_view text, std::vector<const char*> words = {}) {
  words.push_back("program.py");
  ParsedLine line = parse_line(words, kRunVerb.options);
  line.set_defaults(parse(text).defaults_of("run"), kRunVerb.options);
  std::optional<RunOptions> options;
  read_line(line, [&](const ParsedLine& given) {
    options = read_run_options(given, [](const std::string&) { return std::nullopt; });
  });
  return *options;
}

std::string run_refusal(std::string_view text, const std::vector<const char*>& words = {}) {
  return refusal_of<ConfigInvalid>([&] { run_options(text, words); });
}

TEST(Config, RefusesAnUnknownTableOrKeyWithLineAndTheNearest) {
  EXPECT_EQ(refusal("\n[rnu]\n"), "/c.toml:2: unknown key 'rnu'; the nearest is run");
  EXPECT_THAT(refusal("[lxc]\n"),
              StartsWith("/c.toml:1: unknown key 'lxc'; the nearest is run; there are: run, "));
  EXPECT_EQ(refusal("[run]\npids = 9\ntimeuot = 3"),
            "/c.toml:3: unknown key 'timeuot' in [run]; the nearest is timeout");
  EXPECT_EQ(refusal("[backends]\njsn = true"),
            "/c.toml:2: unknown key 'jsn' in [backends]; the nearest is json");
  EXPECT_EQ(refusal("[backends.linxu]\n"),
            "/c.toml:1: unknown key 'linxu' in [backends]; the nearest is linux");
  EXPECT_EQ(refusal("[backends.linux]\nstate-dir = '/s'"),
            "/c.toml:2: unknown key 'state-dir' in [backends.linux]; the nearest is state_dir");
  EXPECT_EQ(refusal("[backends.docker]\nimge = 'x'"),
            "/c.toml:2: unknown key 'imge' in [backends.docker]; the nearest is image");
  EXPECT_THAT(refusal("[run]\nconfig = '/other.toml'"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(refusal("[run]\nv = true"), HasSubstr("unknown key 'v'"));
  EXPECT_THAT(refusal("[run]\n--timeout = 3"), HasSubstr("/c.toml:2: unknown key '--timeout'"));
  EXPECT_THAT(refusal("[run]\n\"\\u001b[2J\" = 3"), Not(HasSubstr("\x1b")));
}

TEST(Config, AKeyInTheWrongTableIsToldTheRightOnes) {
  EXPECT_THAT(refusal("timeout = 3"),
              EndsWith("/c.toml:1: unknown key 'timeout'; put it under [run]"));
  EXPECT_THAT(refusal("json = true"), EndsWith("; put it under [run] or [backends]"));
  EXPECT_EQ(refusal("[backends]\nout-dir = 'x'"),
            "/c.toml:2: unknown key 'out-dir' in [backends]; put it under [run]");
  EXPECT_EQ(refusal("state_dir = '/s'"),
            "/c.toml:1: unknown key 'state_dir'; put it under [backends.linux], [backends.oci], "
            "[backends.docker] or [backends.microvm]");
  EXPECT_EQ(refusal("[run]\nqemu = 'x'"),
            "/c.toml:2: unknown key 'qemu' in [run]; put it under [backends.microvm]");
}

TEST(Config, WithATableThatIsNoNameIsRefusedWithItsLine) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {"\n[\\]\n"sv, "\n[\0run]\n"sv, "\n[[=]]\n"sv, "\n[."sv, "\n[\u00e9]\n"sv, "\n[a\u00e9]\n"sv,
        "\n\u00e9 = 1\n"sv, "\n[run]a = \u3042"sv}) {
    EXPECT_THAT(refusal(text), HasSubstr("/c.toml:2: ")) << text;
  }
}

TEST(Config, RefusesWrongTypesWithLineAndAnExample) {
  EXPECT_EQ(refusal("run = 3"),
            "/c.toml:1: run is a number, and has to be a table; write [run] and its keys below");
  EXPECT_EQ(refusal("[run]\ntimeout = \"60\""),
            "/c.toml:2: timeout is a string, and takes a number; for example timeout = 2.5");
  EXPECT_EQ(refusal("[run]\nmemory = 1.5"),
            "/c.toml:2: memory is a number, and takes a string or a whole number; for example "
            "memory = \"1G\"");
  EXPECT_EQ(refusal("[run]\noverwrite = \"yes\""),
            "/c.toml:2: overwrite is a string, and takes true or false; for example overwrite = "
            "true");
  EXPECT_EQ(refusal("[run]\noutput = \"a\""),
            "/c.toml:2: output is a string, and takes an array of strings; for example output = "
            "[\"report.png\"]");
  EXPECT_EQ(refusal("[run]\noutput = [\n  \"a\",\n  3,\n]"),
            "/c.toml:4: output is a number, and takes a string; for example output = "
            "[\"report.png\"]");
  EXPECT_EQ(refusal("[run]\nscope = [\"a\"]"),
            "/c.toml:2: scope is an array, and takes a string; for example scope = \"reports\"");
  EXPECT_THAT(refusal("[run]\nscope = 2026-01-01"), HasSubstr("scope is a date or time"));
  EXPECT_THAT(refusal("[run.scope]\na = 1"), HasSubstr("/c.toml:1: scope is a table"));
  EXPECT_THAT(refusal("[run]\nscope = \"a\\u0000b\""), HasSubstr("scope holds a NUL character"));
  EXPECT_THAT(refusal("[backends.linux]\nstate_dir = 3"), HasSubstr("state_dir is a number"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_dir = 'here'"),
              HasSubstr("image_dir cannot be 'here'"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_keep_days = '30'"),
              HasSubstr("image_keep_days is a string, and takes a whole number"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_keep_days = -1"),
              HasSubstr("/c.toml:2: image_keep_days cannot be '-1'"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_keep_days = 36501"),
              HasSubstr("image_keep_days cannot be '36501'"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_store_size = '20 apples'"),
              HasSubstr("image_store_size cannot be '20 apples'"));
  EXPECT_THAT(refusal("[backends.linux]\nimage_store_size = true"),
              HasSubstr("image_store_size is true or false, and takes"));
  EXPECT_THAT(refusal("[backends.linux]\nstate_dir = 'here'"),
              HasSubstr("state_dir cannot be 'here'"));
  EXPECT_EQ(refusal("[backends.docker]\npull = 'always'"),
            "/c.toml:2: pull cannot be 'always'; pull = \"missing\" or pull = \"never\"");
  EXPECT_THAT(refusal("[backends.docker]\nhost = 3"), HasSubstr("host is a number"));
  EXPECT_THAT(refusal("[backends.docker]\nimage = ''"), HasSubstr("image cannot be ''"));
  EXPECT_THAT(refusal("[backends.docker]\ntls_dir = 'here'"),
              HasSubstr("tls_dir cannot be 'here'"));
}

TEST(Config, RefusesWhatIsNoTomlWithItsLine) {
  EXPECT_THAT(refusal("[run]\ntimeout = "), StartsWith("/c.toml:2: "));
  EXPECT_THAT(refusal("[run]\npids = 5\npids = 6"), StartsWith("/c.toml:3: "));
  EXPECT_THAT(refusal("[run]\nscope = \"\xff\""), StartsWith("/c.toml:2: "));
  EXPECT_THAT(refusal("[run]\na = " + std::string(100'000, '[')), StartsWith("/c.toml:2: "));
}

TEST(Config, GivesEveryLongOptionOfAVerbADefault) {
  for (const OptionSpec& option : kRunVerb.options) {
    if (!option.name.starts_with("--") || option.name == "--config") continue;
    const std::string value = option.value.empty()               ? "true"
                              : option.form == ValueForm::number ? "5"
                              : option.repeat == Repeat::allowed ? "['x']"
                                                                 : "'x'";
    const Config config =
        parse("[run]\n" + std::string(option.name.substr(2)) + " = " + value + "\n");
    ASSERT_EQ(config.defaults_of("run").size(), 1U) << option.name;
    EXPECT_EQ(config.defaults_of("run")[0].option, option.name);
    EXPECT_EQ(config.defaults_of("run")[0].where, "/c.toml:2");
  }
}

TEST(Config, ValuesBecomeThoseOfTheRun) {
  const RunOptions options = run_options(
      "[run]\ntimeout = 2.5\nmemory = 33_554_432\ndisk = '2M'\npids = 0x10\ncpus = 0.5\n"
      "deny-capability = ['files_out', 'host_tools']\nscope = 'reports'\nlabel = ['a=b', 'c=']\n"
      "json = true\nstdin = false\n[backends]\njson = false\n[backends.linux]\nstate_dir = '/s'\n");
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(options.resources.memory_bytes, stated(32 * kMiB));
  EXPECT_EQ(options.resources.disk_bytes, stated(2 * kMiB));
  EXPECT_EQ(options.resources.pids, stated(std::uint64_t{16}));
  EXPECT_EQ(options.resources.cpu_millis, stated(std::uint64_t{500}));
  EXPECT_EQ(options.denied_capabilities,
            (CapabilitySet{Capability::files_out, Capability::host_tools}));
  EXPECT_EQ(options.key.scope, "reports");
  EXPECT_EQ(options.labels, (std::map<std::string, std::string>{{"a", "b"}, {"c", ""}}));
  EXPECT_TRUE(options.json);
  EXPECT_FALSE(options.forward_stdin);
  EXPECT_EQ(parse("[backends.linux]\nstate_dir = '/s'").linux_state_dir, "/s");
  EXPECT_EQ(parse("[backends.docker]\nhost = 'unix:///s'\nimage = 'python:3-slim'").docker,
            (std::map<std::string, std::string, std::less<>>{{"host", "unix:///s"},
                                                             {"image", "python:3-slim"}}));
  EXPECT_EQ(parse("[backends.linux]\nimage_dir = '/i'").linux_image_dir, "/i");
  EXPECT_EQ(parse("[backends.linux]\nimage_keep_days = 0").linux_image_keep,
            std::chrono::seconds(0));
  EXPECT_EQ(parse("[backends.linux]\nimage_keep_days = 36500").linux_image_keep,
            std::chrono::days(36500));
  EXPECT_EQ(parse("[backends.linux]\nimage_store_size = '2M'").linux_image_store_bytes, 2 * kMiB);
}

TEST(Config, AnOptionOfTheLineWins) {
  EXPECT_EQ(run_options("[run]\ntimeout = 5\n", {"--timeout", "7"}).timeout,
            std::chrono::seconds(7));
  // A repeatable one too: its values take the place of the defaults, they do not join them.
  EXPECT_THAT(run_options("[run]\noutput = ['a', 'b']\nout-dir = 'o'\n", {"--output", "c"}).outputs,
              ElementsAre("c"));
  // A value that would be refused hurts nobody who does not use it.
  EXPECT_EQ(run_options("[run]\ntimeout = 0\n", {"--timeout", "7"}).timeout,
            std::chrono::seconds(7));
}

TEST(Config, AWayToNameOutputsThatIsTypedDisplacesTheOtherOne) {
  const RunOptions declared =
      run_options("[run]\nmanifest = true\nout-dir = 'o'\n", {"--output", "c"});
  EXPECT_FALSE(declared.manifest);
  const RunOptions manifest = run_options("[run]\noutput = ['c']\nout-dir = 'o'\n", {"--manifest"});
  EXPECT_THAT(manifest.outputs, IsEmpty());
}

TEST(Config, ADirectoryThatARunHasNoUseForIsNotSpokenOf) {
  const RunOptions options = run_options("[run]\nout-dir = 'o'\noverwrite = true\n");
  EXPECT_EQ(options.out_dir, std::nullopt);
  EXPECT_FALSE(options.overwrite);
  EXPECT_EQ(run_options("", {"--out-dir", "o"}).out_dir, "o");
}

TEST(Config, RefusesAValueInTheWordsOfTheOptionWithFileAndLine) {
  const auto typed = [](const std::vector<const char*>& words) {
    return refusal_of<InvalidArgument>([&] { run_options("", words); });
  };
  EXPECT_EQ(run_refusal("[run]\n\ntimeout = 0\n"), "/c.toml:3: " + typed({"--timeout", "0"}));
  EXPECT_EQ(run_refusal("[run]\ntimeout = 604801\n"),
            "/c.toml:2: " + typed({"--timeout", "604801"}));
  EXPECT_EQ(run_refusal("[run]\npids = -4\n"), "/c.toml:2: " + typed({"--pids", "-4"}));
  EXPECT_EQ(run_refusal("[run]\ncpus = nan\n"), "/c.toml:2: " + typed({"--cpus", "nan"}));
  EXPECT_EQ(run_refusal("[run]\nmemory = 16777215\n"),
            "/c.toml:2: " + typed({"--memory", "16777215"}));
  EXPECT_EQ(run_refusal("[run]\nmin-isolation = 'contaner'\n"),
            "/c.toml:2: " + typed({"--min-isolation", "contaner"}));
  EXPECT_EQ(run_refusal("[run]\nscope = ''\n"), "/c.toml:2: " + typed({"--scope", ""}));
}

TEST(Config, BlamesTheLineThatIsAtFaultAmongMany) {
  EXPECT_THAT(run_refusal("[run]\ntimeout = 5\nlabel = [\n'a=1',\n'b',\n'c=2']\npids = 9\n"),
              StartsWith("/c.toml:5: --label cannot be 'b'"));
  EXPECT_THAT(run_refusal("[run]\npids = 1\ntimeout = 0\n"), StartsWith("/c.toml:3: --timeout"));
  // Together with a word of the line, too.
  EXPECT_THAT(run_refusal("[run]\nmanifest = true\n"),
              StartsWith("/c.toml:2: --manifest needs --out-dir"));
}

TEST(Config, DoesNotBlameTheFileForAWordOfTheLine) {
  EXPECT_EQ(refusal_of<ConfigInvalid>([] {
              EXPECT_THROW(run_options("[run]\npids = 9\n", {"--timeout", "0"}), InvalidArgument);
            }),
            "nothing was refused");
}

TEST(Config, ReadsAHostToolWithItsStamp) {
  const Config config = parse(
      "[host_tools.lookup]\ncommand = './lookup'\nsource = 'trusted'\nsink = 'internal'\n"
      "identity = 'app'\ndescription = 'Looks up.'\ntimeout = 2.5\nmax_concurrency = 4\n"
      "[host_tools.lookup.parameters]\ntype = 'object'\nrequired = ['key']\n"
      "properties.key = { type = 'string', maxLength = 9 }\nproperties.n.multipleOf = 0.5\n"
      "additionalProperties = false\n");
  ASSERT_EQ(config.host_tools.size(), 1U);
  const HostToolSetting& tool = config.host_tools[0];
  EXPECT_EQ(tool.name, "lookup");
  EXPECT_EQ(tool.command, "./lookup");
  EXPECT_EQ(tool.description, "Looks up.");
  EXPECT_EQ(tool.declaration,
            (HostToolDeclaration{SourceIntegrity::trusted, "internal", Identity::app}));
  EXPECT_EQ(tool.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(tool.max_concurrency, 4U);
  EXPECT_EQ(tool.parameters,
            R"({"additionalProperties":false,"properties":{"key":{"maxLength":9,"type":"string"},)"
            R"("n":{"multipleOf":0.5}},"required":["key"],"type":"object"})");
  EXPECT_EQ(tool.where, "/c.toml:1");
  EXPECT_EQ(tool.identity_where, "/c.toml:5");
  EXPECT_EQ(tool.parameters_where, "/c.toml:9");
}

TEST(Config, AStampMaySayThatThereIsNone) {
  const Config config = parse(
      "[host_tools.now]\ncommand = 'date +%s'\nsource = 'none'\nsink = 'none'\nidentity = 'none'\n"
      "parameters = '{\"type\": \"object\"}'\n[host_tools.unstamped]\ncommand = 'date +%s'\n");
  ASSERT_EQ(config.host_tools.size(), 2U);
  EXPECT_EQ(config.host_tools[0].declaration,
            (HostToolDeclaration{std::nullopt, std::nullopt, std::nullopt}));
  EXPECT_EQ(config.host_tools[0].parameters, R"({"type":"object"})");
  EXPECT_EQ(config.host_tools[1].declaration, std::nullopt);
}

TEST(Config, RefusesAHostToolThatIsIncompleteOrWrong) {
  const auto refused = [](const std::string& keys) {
    return refusal("[host_tools.a]\ncommand = 'x'\n" + keys);
  };
  EXPECT_THAT(refusal("[host_tools.a]\n"), StartsWith("/c.toml:1: [host_tools.a] has no command"));
  EXPECT_THAT(refusal("host_tools = 3"), HasSubstr("host_tools is a number"));
  EXPECT_THAT(refusal("[host_tools]\na = 'x'"),
              StartsWith("/c.toml:2: host_tools.a is a string, and has to be a table"));
  EXPECT_THAT(refusal("[host_tools.a]\ncommand = ''"), HasSubstr(":2: command is empty"));
  EXPECT_THAT(
      refused("comand = 'y'"),
      HasSubstr("/c.toml:3: unknown key 'comand' in [host_tools.a]; the nearest is command"));
  EXPECT_THAT(refused("source = 'trusted'"), HasSubstr("sink is missing"));
  EXPECT_THAT(refused("source = 'trusted'\nsink = 'none'"), HasSubstr("identity is missing"));
  EXPECT_THAT(refused("source = 'truste'\nsink = 'none'\nidentity = 'none'"),
              HasSubstr("/c.toml:3: source does not know 'truste'; the nearest is trusted"));
  EXPECT_THAT(refused("source = 'none'\nsink = ''\nidentity = 'none'"), HasSubstr("sink is empty"));
  EXPECT_THAT(refused("source = 'none'\nsink = false\nidentity = 'none'"),
              HasSubstr("/c.toml:4: sink is true or false, and takes a string"));
  EXPECT_THAT(refused("timeout = 0"), HasSubstr("/c.toml:3: timeout cannot be '0'"));
  EXPECT_THAT(refused("timeout = '3'"), HasSubstr("timeout is a string, and takes a number"));
  EXPECT_THAT(refused("max_concurrency = 0"), HasSubstr("max_concurrency cannot be '0'"));
  EXPECT_THAT(refused("max_concurrency = 33"), HasSubstr("a whole number from 1 to 32"));
  EXPECT_THAT(refused("parameters = '{'"), HasSubstr("/c.toml:3: parameters is no JSON"));
  EXPECT_THAT(refused("parameters = { a = nan }"), HasSubstr("parameters holds nan"));
  EXPECT_THAT(refused("parameters = { a = 2026-01-01 }"), HasSubstr("holds a date or time"));
  EXPECT_THAT(refused("parameters = 3"), HasSubstr("takes a table or a string of JSON"));
}

TEST(Config, AHostToolOfTheLineTakesThePlaceOfOneOfTheSameName) {
  RunOptions options = run_options("", {"--host-tool", "a=new"});
  add_host_tools(options,
                 parse("[host_tools.a]\ncommand = 'old'\nsource = 'trusted'\nsink = 'none'\n"
                       "identity = 'none'\n[host_tools.b]\ncommand = 'other'\n")
                     .host_tools);
  ASSERT_EQ(options.host_tools.tools.size(), 2U);
  EXPECT_EQ(options.host_tools.tools[0].command, "new");
  EXPECT_EQ(options.host_tools.tools[0].declaration, std::nullopt);
  EXPECT_EQ(options.host_tools.tools[1].command, "other");
}

// Where the file is looked for.
class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "casemate-config-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, std::string_view text) const {
    const auto path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  std::string scope_of(const std::vector<const char*>& words = {}) const {
    const ParsedLine line = parse_line(words, kRunVerb.options);
    const Config config = load_config(
        line,
        [this](const std::string& name) {
          const auto found = variables_.find(name);
          return found == variables_.end() ? std::nullopt : std::optional(found->second);
        },
        kVerbs);
    const auto defaults = config.defaults_of("run");
    return defaults.empty() ? "" : defaults[0].value;
  }

  std::filesystem::path directory_;
  std::map<std::string, std::string> variables_;
};

TEST_F(ConfigFile, IsTheOneNamedElseTheVariablesElseTheUsersOwn) {
  const std::string named = write("named.toml", "[run]\nscope = 'named'\n");
  const std::string variable = write("variable.toml", "[run]\nscope = 'variable'\n");
  write("xdg/casemate/casemate.toml", "[run]\nscope = 'xdg'\n");
  write("home/.config/casemate/casemate.toml", "[run]\nscope = 'home'\n");
  EXPECT_EQ(scope_of(), "");
  variables_["HOME"] = directory_ / "home";
  EXPECT_EQ(scope_of(), "home");
  variables_["XDG_CONFIG_HOME"] = "";
  EXPECT_EQ(scope_of(), "home");
  variables_["XDG_CONFIG_HOME"] = directory_ / "xdg";
  EXPECT_EQ(scope_of(), "xdg");
  variables_["CASEMATE_CONFIG"] = "";
  EXPECT_EQ(scope_of(), "xdg");
  variables_["CASEMATE_CONFIG"] = variable;
  EXPECT_EQ(scope_of(), "variable");
  EXPECT_EQ(scope_of({"--config", named.c_str()}), "named");
  EXPECT_EQ(scope_of({"--config", "/dev/null"}), "");
}

TEST_F(ConfigFile, IsNeverLookedForInTheCurrentDirectory) {
  const auto before = std::filesystem::current_path();
  write("casemate.toml", "[run]\nscope = 'cloned'\n");
  write("casemate/casemate.toml", "[run]\nscope = 'cloned'\n");
  write(".config/casemate/casemate.toml", "[run]\nscope = 'cloned'\n");
  std::filesystem::current_path(directory_);
  variables_["XDG_CONFIG_HOME"] = ".";
  variables_["HOME"] = ".";
  EXPECT_EQ(scope_of(), "");
  variables_["CASEMATE_CONFIG"] = "casemate.toml";
  EXPECT_THROW(scope_of(), ConfigInvalid);
  std::filesystem::current_path(before);
}

TEST_F(ConfigFile, ThatIsNamedHasToBeThereAndReadable) {
  variables_["HOME"] = directory_;
  const std::string missing = directory_ / "missing.toml";
  EXPECT_THROW(scope_of({"--config", missing.c_str()}), ConfigInvalid);
  EXPECT_THROW(scope_of({"--config", directory_.c_str()}), ConfigInvalid);
  EXPECT_THROW(scope_of({"--config", ""}), InvalidArgument);
  variables_["CASEMATE_CONFIG"] = missing;
  EXPECT_THROW(scope_of(), ConfigInvalid);
  variables_.erase("CASEMATE_CONFIG");
  // One that is there and is no file is not the same as none.
  std::filesystem::create_directories(directory_ / ".config/casemate/casemate.toml");
  expect_refusal<ConfigInvalid>([&] { scope_of(); }, "set HOME");
  variables_["XDG_CONFIG_HOME"] = directory_ / ".config";
  expect_refusal<ConfigInvalid>([&] { scope_of(); }, "set XDG_CONFIG_HOME");
}

TEST_F(ConfigFile, IsReadUpToABound) {
  const std::string fits = write("a.toml", "#" + std::string(1024 * 1024 - 1, 'x'));
  const std::string over = write("b.toml", "#" + std::string(1024 * 1024, 'x'));
  EXPECT_EQ(scope_of({"--config", fits.c_str()}), "");
  EXPECT_THROW(scope_of({"--config", over.c_str()}), ConfigInvalid);
  EXPECT_THROW(scope_of({"--config", "/dev/zero"}), ConfigInvalid);
}

}  // namespace
}  // namespace casemate::app
