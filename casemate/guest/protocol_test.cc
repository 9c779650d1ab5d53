#include "casemate/guest/protocol.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace casemate::guest {
namespace {

using namespace std::string_literals;

Exec small_exec() {
  Exec message;
  message.argv = {"sh", "-c", "echo \xff"};
  message.directory = "/workspace/0123456789ab/work";
  message.environment = {{"A", "b=c"}, {"EMPTY", ""}};
  message.stdin_piped = true;
  message.timeout_ns = 5;
  return message;
}

TEST(Protocol, AnExecComesBackAsItWasSent) {
  const Exec got = decode_exec(encode(small_exec()));
  EXPECT_EQ(got.argv, small_exec().argv);
  EXPECT_EQ(got.directory, small_exec().directory);
  EXPECT_EQ(got.environment, small_exec().environment);
  EXPECT_TRUE(got.stdin_piped);
  EXPECT_EQ(got.timeout_ns, 5U);
}

TEST(Protocol, RefusesAnExecThatCannotBeMeant) {
  const auto refused = [](auto change) {
    Exec message = small_exec();
    change(message);
    EXPECT_THROW(decode_exec(encode(message)), ProtocolError);
  };
  refused([](Exec& m) { m.argv.clear(); });
  refused([](Exec& m) { m.argv[1] = "a\0b"s; });
  refused([](Exec& m) { m.directory = "work"; });
  refused([](Exec& m) { m.directory = "/a/../b"; });
  refused([](Exec& m) { m.directory = "/a//b"; });
  refused([](Exec& m) { m.directory = "/a/"; });
  refused([](Exec& m) { m.environment[0].first = ""; });
  refused([](Exec& m) { m.environment[0].first = "A=B"; });
  refused([](Exec& m) { m.environment[0].second = "a\0b"s; });
  EXPECT_THROW(decode_exec(encode(small_exec()) + "x"), ProtocolError);
  // A count that the bytes do not hold is found by the bytes, not by allocating for it.
  EXPECT_THROW(decode_exec("\xff\xff\xff\xff"s), ProtocolError);
}

TEST(Protocol, AHeldProgramComesBackAsItWasSentAndHasNoInput) {
  Hold message{.exec = small_exec(), .path = "/workspace/0123456789ab/program/program.py"};
  EXPECT_THROW(decode_hold(encode(message)), ProtocolError);
  message.exec.stdin_piped = false;
  const Hold got = decode_hold(encode(message));
  EXPECT_EQ(got.path, message.path);
  EXPECT_EQ(got.exec.argv, message.exec.argv);
  message.imports.assign(kMaxImports, "os.path");
  EXPECT_EQ(decode_hold(encode(message)).imports, message.imports);
  message.imports.emplace_back("json");
  EXPECT_THROW(decode_hold(encode(message)), ProtocolError) << "one more";
  message.imports = {std::string(kMaxImportName, 'x')};
  EXPECT_EQ(decode_hold(encode(message)).imports, message.imports);
  for (const char* name :
       {"", ".", "a.", ".a", "a..b", "1a", "a.1b", "a b", "a\nb", "a/b", "\xc3\xa4"}) {
    message.imports = {name};
    EXPECT_THROW(decode_hold(encode(message)), ProtocolError) << name;
  }
  message.imports = {std::string(kMaxImportName + 1, 'x')};
  EXPECT_THROW(decode_hold(encode(message)), ProtocolError);
  message.imports.clear();
  message.path = "/workspace/../program.py";
  EXPECT_THROW(decode_hold(encode(message)), ProtocolError);
}

TEST(Protocol, ASourceThatFitsAPipeIsReleasedAndOneByteMoreIsNot) {
  const Release got = decode_release(encode(Release{7, std::string(kMaxHeldSource, 'x')}));
  EXPECT_EQ(got.timeout_ns, 7U);
  EXPECT_EQ(got.source.size(), kMaxHeldSource);
  EXPECT_THROW(decode_release(encode(Release{7, std::string(kMaxHeldSource + 1, 'x')})),
               ProtocolError);
}

TEST(Protocol, AnExecOverOneFrameCannotBeEncoded) {
  Exec message = small_exec();
  message.argv.assign(9, std::string(128 * 1024, 'x'));
  EXPECT_THROW(encode(message), std::length_error);
}

TEST(Protocol, RefusesPathsThatAreNotNormalised) {
  for (const char* path : {"..", "a/..", "a/../b", ".", "./a", "a//b", "a/", "/a"}) {
    EXPECT_THROW(decode_file_path(encode(FilePath{"/workspace", path})), ProtocolError) << path;
  }
  for (const char* directory : {"", "workspace", "/a/..", "/a/", "//a"}) {
    EXPECT_THROW(decode_file_path(encode(FilePath{directory, "a"})), ProtocolError) << directory;
  }
  EXPECT_THROW(decode_file_path(encode(FilePath{"/w", "a\0b"s})), ProtocolError);
  for (const char* path : {"", "a", "a/b", "..a", "a..", ".a", "a/...", "\xff"}) {
    EXPECT_EQ(decode_file_path(encode(FilePath{"/", path})).path, path);
  }
}

TEST(Protocol, APathOfLinuxsBoundPassesAndOneMoreIsRefused) {
  EXPECT_EQ(decode_file_path(encode(FilePath{"/", std::string(kMaxPath - 1, 'a')})).path.size(),
            kMaxPath - 1);
  EXPECT_THROW(decode_file_path(encode(FilePath{"/", std::string(kMaxPath, 'a')})), ProtocolError);
}

TEST(Protocol, RefusesEntriesWhoseNamesAreNoNames) {
  const auto listing = [](std::string name) {
    Writer writer;
    append_entry(writer, {std::move(name), WireKind::file, 1});
    return writer.take();
  };
  for (const std::string& name : {""s, "."s, ".."s, "a/b"s, "/"s, "a\0b"s, std::string(256, 'a')}) {
    EXPECT_THROW(decode_entries(listing(name)), ProtocolError);
  }
  EXPECT_EQ(decode_entries(listing(std::string(255, 'a'))).size(), 1U);
  EXPECT_THROW(decode_entries(""), ProtocolError);
}

TEST(Protocol, RefusesAnEndWhoseFieldsContradictItsCause) {
  const auto with = [](EndCause cause, int code, int signal) {
    Ended message;
    message.cause = cause;
    message.exit_code = code;
    message.signal = signal;
    return encode(message);
  };
  EXPECT_EQ(decode_ended(with(EndCause::exited, 255, 0)).exit_code, 255);
  EXPECT_THROW(decode_ended(with(EndCause::exited, 256, 0)), ProtocolError);
  EXPECT_THROW(decode_ended(with(EndCause::exited, -1, 0)), ProtocolError);
  EXPECT_THROW(decode_ended(with(EndCause::exited, 0, 9)), ProtocolError);
  EXPECT_EQ(decode_ended(with(EndCause::signaled, 0, 64)).signal, 64);
  EXPECT_THROW(decode_ended(with(EndCause::signaled, 0, 65)), ProtocolError);
  EXPECT_THROW(decode_ended(with(EndCause::signaled, 0, 0)), ProtocolError);
  EXPECT_THROW(decode_ended(with(EndCause::timed_out, 1, 0)), ProtocolError);
  EXPECT_THROW(decode_ended("\x04" + with(EndCause::exited, 0, 0).substr(1)), ProtocolError);
  Ended late;
  late.wall_ns = 1ULL << 63;
  EXPECT_THROW(decode_ended(encode(late)), ProtocolError);
  late.wall_ns -= 1;
  EXPECT_EQ(decode_ended(encode(late)).wall_ns, late.wall_ns);
}

TEST(Protocol, RefusesAFailureWithoutAnErrnoOfLinux) {
  EXPECT_EQ(decode_failure(encode(Failure{FailureReason::errno_value, 4095, ""})).error, 4095);
  for (const int error : {-1, 0, 4096}) {
    EXPECT_THROW(decode_failure(encode(Failure{FailureReason::errno_value, error, ""})),
                 ProtocolError);
  }
  EXPECT_EQ(decode_failure(encode(Failure{FailureReason::over_cap, 0, "x"})).text, "x");
  const Failure wordy{FailureReason::over_cap, 0, std::string(kMaxFailureText + 1, 'x')};
  EXPECT_EQ(decode_failure(encode(wordy)).text.size(), kMaxFailureText);
}

TEST(Protocol, CallIdsAreTwelveLowerCaseHexDigits) {
  EXPECT_TRUE(is_call_id("0123456789ab"));
  for (const char* id :
       {"", "0123456789a", "0123456789abc", "0123456789aB", "0123456789ag", "../../../../"}) {
    EXPECT_FALSE(is_call_id(id)) << id;
    EXPECT_THROW(decode_open_call(encode(OpenCall{kProtocolVersion, id})), ProtocolError);
  }
}

TEST(Protocol, SignalsAndCreditsKeepToTheirRange) {
  EXPECT_EQ(decode_signal(encode_signal(1)), 1);
  EXPECT_EQ(decode_signal(encode_signal(64)), 64);
  EXPECT_THROW(decode_signal(encode_signal(0)), ProtocolError);
  EXPECT_THROW(decode_signal(encode_signal(65)), ProtocolError);
  EXPECT_EQ(decode_stdin_taken(encode_stdin_taken(kStdinWindow)), kStdinWindow);
  EXPECT_THROW(decode_stdin_taken(encode_stdin_taken(kStdinWindow + 1)), ProtocolError);
  EXPECT_THROW(decode_stdin_taken(encode_stdin_taken(0)), ProtocolError);
}

TEST(Protocol, DataFramesKeepToTheirBound) {
  expect_data(Frame{wire(FrameType::data), std::string(kMaxData, 'x'), {}});
  EXPECT_THROW(expect_data(Frame{wire(FrameType::data), std::string(kMaxData + 1, 'x'), {}}),
               ProtocolError);
  EXPECT_THROW(expect_data(Frame{wire(FrameType::data), "", {}}), ProtocolError);
  EXPECT_THROW(expect_empty(Frame{wire(FrameType::end), "x", {}}), ProtocolError);
}

// Any bytes either decode or are a ProtocolError: never a crash, never another exception.
RC_GTEST_PROP(Protocol, AnyBytesDecodeOrAreRefused, (const std::string& bytes)) {
  const auto attempt = [&](auto decode) {
    try {
      decode(bytes);
    } catch (const ProtocolError&) {
    }
  };
  attempt(decode_failure);
  attempt(decode_open_call);
  attempt(decode_call_opened);
  attempt(decode_attach);
  attempt(decode_call_closed);
  attempt(decode_exec);
  attempt(decode_stdin_taken);
  attempt(decode_signal);
  attempt(decode_ended);
  attempt(decode_write_file);
  attempt(decode_read_file);
  attempt(decode_file_path);
  attempt(decode_remove_file);
  attempt(decode_entry);
  attempt(decode_entries);
}

TEST(Protocol, ThreeKindsOfConnectionsAreAttachedAndNoFourth) {
  for (const AttachKind kind : {AttachKind::exec, AttachKind::files, AttachKind::resident}) {
    EXPECT_EQ(decode_attach(encode(kind)), kind);
  }
  EXPECT_THROW(decode_attach(encode(static_cast<AttachKind>(3))), ProtocolError);
}

TEST(Protocol, RulesOfDoorsComeWithEgressOnly) {
  OpenCall message{.id = "0123456789ab",
                   .egress = true,
                   .door_rules = {{EgressDoorRule::Form::name, "allowed.test", {80, 443}}}};
  const OpenCall read = decode_open_call(encode(message));
  EXPECT_TRUE(read.egress);
  EXPECT_EQ(read.door_rules, message.door_rules);
  message.egress = false;
  EXPECT_THROW(decode_open_call(encode(message)), ProtocolError);
  std::string cut = encode(OpenCall{.id = "0123456789ab", .egress = true});
  cut.pop_back();
  EXPECT_THROW(decode_open_call(cut), ProtocolError);
}

TEST(Protocol, PortOfAProxyIsAPort) {
  EXPECT_EQ(decode_call_opened(encode(CallOpened{.proxy_port = 65535})).proxy_port, 65535);
  std::string bytes = encode(CallOpened{.proxy_port = 65535});
  bytes[bytes.size() - 2] = 1;
  EXPECT_THROW(decode_call_opened(bytes), ProtocolError);
}

}  // namespace
}  // namespace casemate::guest
