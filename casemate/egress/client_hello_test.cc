#include "casemate/egress/client_hello.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "casemate/egress/client_hello_test.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using State = ClientHelloReader::State;

struct Read {
  State state = State::more;
  std::optional<std::string> name;
  bool encrypted = false;
};

Read read(std::string_view bytes, std::size_t piece = std::string::npos) {
  ClientHelloReader reader;
  Read result;
  while (!bytes.empty() && result.state == State::more) {
    result.state = reader.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (result.state == State::complete) {
    result.name = reader.server_name();
    result.encrypted = reader.encrypted();
  }
  return result;
}

State state_of(const std::optional<std::string>& extensions) {
  return read(in_records(hello_message(extensions))).state;
}

TEST(ClientHello, NamesItsServer) {
  const Read result = read(client_hello("a.test"));
  EXPECT_EQ(result.state, State::complete);
  EXPECT_EQ(result.name, "a.test");
  EXPECT_FALSE(result.encrypted);
}

TEST(ClientHello, IsReadInAnyPiecesAndRecords) {
  for (const std::size_t record : {1U, 3U, 4U, 5U, 100U}) {
    const std::string bytes = client_hello("a.test", record);
    for (const std::size_t piece : {1U, 2U, 7U, 1000U}) {
      EXPECT_EQ(read(bytes, piece).name, "a.test") << record << " " << piece;
    }
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_EQ(read(bytes.substr(0, cut)).state, State::more) << record << " " << cut;
    }
  }
}

TEST(ClientHello, BytesBehindItAreNotLookedAt) {
  EXPECT_EQ(read(client_hello("a.test") + "anything").name, "a.test");
}

TEST(ClientHello, MayNameNoServer) {
  EXPECT_EQ(read(in_records(hello_message(std::nullopt))).state, State::complete);
  EXPECT_EQ(read(in_records(hello_message(""))).name, std::nullopt);
  EXPECT_EQ(read(in_records(hello_message(tls_extension(10, "xx")))).name, std::nullopt);
}

TEST(ClientHello, SaysThatItMayNameAnotherInSecret) {
  EXPECT_TRUE(read(in_records(hello_message(server_name_extension("a.test") +
                                            tls_extension(0xfe0d, "grease"))))
                  .encrypted);
}

TEST(ClientHello, OfTwoServerNamesNoneCounts) {
  const std::string name = server_name_extension("a.test");
  EXPECT_EQ(state_of(name + name), State::malformed);
  EXPECT_EQ(state_of(name + server_name_extension("b.test")), State::malformed);
  const std::string entry = "\0"s + vector_of("a.test", 2);
  EXPECT_EQ(state_of(tls_extension(0, vector_of(entry, 2))), State::complete);
  EXPECT_EQ(state_of(tls_extension(0, vector_of(entry + entry, 2))), State::malformed);
  EXPECT_EQ(state_of(tls_extension(0, vector_of("\x01"s + vector_of("a.test", 2), 2))),
            State::malformed)
      << "a name of another type";
  EXPECT_EQ(state_of(tls_extension(0, vector_of("\0"s + vector_of("", 2), 2))), State::malformed);
  EXPECT_EQ(state_of(tls_extension(0, "")), State::malformed);
  EXPECT_EQ(state_of(tls_extension(0, vector_of(entry, 2) + "x")), State::malformed);
}

TEST(ClientHello, RefusesLengthsThatDoNotFit) {
  const std::string body = hello_message("").substr(4);
  for (std::size_t cut = 0; cut < body.size(); ++cut) {
    const std::string shorter = body.substr(0, cut);
    // 72 bytes: all but the extensions.
    EXPECT_EQ(read(in_records("\x01" + vector_of(shorter, 3))).state,
              cut == body.size() - 2 ? State::complete : State::malformed)
        << cut;
  }
  EXPECT_EQ(read(in_records("\x01" + vector_of(body + "x", 3))).state, State::malformed);
  EXPECT_EQ(state_of("\x00"s), State::malformed);
  EXPECT_EQ(state_of(tls_extension(10, "xx").substr(0, 5)), State::malformed);
}

TEST(ClientHello, RefusesWhatIsNoHandshakeRecord) {
  const std::string good = client_hello("a.test");
  EXPECT_EQ(read("\x17" + good.substr(1)).state, State::malformed);
  EXPECT_EQ(read("\x16\x02" + good.substr(2)).state, State::malformed);
  EXPECT_EQ(read("\x16\x03\x01\x00\x00"s).state, State::malformed) << "an empty record";
  EXPECT_EQ(read("\x16\x03\x01\x40\x01"s).state, State::malformed) << "over 2^14";
  EXPECT_EQ(read("\x16\x03\x01\x40\x00"s).state, State::more);
  EXPECT_EQ(read(in_records("\x02" + vector_of("xx", 3))).state, State::malformed)
      << "a server's hello";
  // A second record that is something else, in the middle of the message.
  const std::string message = hello_message(server_name_extension("a.test"));
  EXPECT_EQ(read(in_records(message.substr(0, 20)) + "\x15\x03\x01\x00\x02xx"s).state,
            State::malformed);
}

TEST(ClientHello, IsBounded) {
  EXPECT_EQ(read(in_records("\x01" + big_endian(kMaxHelloBytes, 3))).state, State::more);
  EXPECT_EQ(read(in_records("\x01" + big_endian(kMaxHelloBytes + 1, 3))).state, State::malformed);
  // Of the wire, not of the message: a byte a record costs six.
  const std::string padded =
      hello_message(server_name_extension("a.test") + tls_extension(21, std::string(6000, '\0')));
  EXPECT_EQ(read(in_records(padded)).state, State::complete);
  EXPECT_EQ(read(in_records(padded, 1)).state, State::malformed);
}

// Of what is known after the last byte nothing is known before, so nothing is let through early.
std::optional<bool> known_at_its_end(const std::string& bytes) {
  for (std::size_t cut = 0; cut + 1 < bytes.size(); ++cut) {
    EXPECT_EQ(begins_as_tls(bytes.substr(0, cut)), std::nullopt) << cut;
  }
  return begins_as_tls(bytes);
}

TEST(ClientHello, TlsIsWhateverSomeServerTakesForIt) {
  for (const char major : {'\0', '\1', '\2', '\3', '\4', '\x0f'}) {
    const std::string version = major + "\x01"s;
    EXPECT_EQ(known_at_its_end("\x16" + version + "\x02\x00\x01"s), true) << int{major};
    EXPECT_EQ(known_at_its_end("\x16" + version + "\x00\x00"s), true) << "an empty record first";
    EXPECT_EQ(known_at_its_end("\x15" + version + "\x00\x02"s), true) << "an alert first";
    EXPECT_EQ(known_at_its_end("\x15" + version + "\x00\x01"s), true) << "or a part of one";
    EXPECT_EQ(known_at_its_end("\x14" + version + "\x00\x01"s), true);
  }
  EXPECT_EQ(known_at_its_end("\x80\x2e\x01\x03"s), true) << "in the form of SSL 2";
  EXPECT_EQ(known_at_its_end("\xff\xff\x01\x00"s), true);
  EXPECT_EQ(begins_as_tls(client_hello("a.test", 1)), true);
}

TEST(ClientHello, OtherProtocolsAreNot) {
  EXPECT_EQ(begins_as_tls("G"), false);
  EXPECT_EQ(begins_as_tls("\x17\x03"), false) << "no hello stands behind data";
  EXPECT_EQ(begins_as_tls("\x16\x10"), false);
  EXPECT_EQ(begins_as_tls("\x15\x20"), false);
  EXPECT_EQ(known_at_its_end("\x16\x01\x00\x01\x85\xa6"s), false)
      << "MySQL, an answer of 278 bytes";
  EXPECT_EQ(known_at_its_end("\x15\x01\x00\x01\x85"s), false);
  EXPECT_EQ(known_at_its_end("\x14\x01\x00\x01\x85"s), false);
  EXPECT_EQ(known_at_its_end("\x80\x00\x00"s), false) << "MongoDB, a message of 128 bytes";
  EXPECT_EQ(known_at_its_end("\x80\x2e\x01\x04"s), false);
  EXPECT_EQ(known_at_its_end("\x16\x03\x01\x02\x00\x02"s), false) << "a server's hello";
}

// What OpenSSL says for `name`, by way of the Python that sandboxes run.
std::string hello_of_openssl(const std::string& name) {
  const std::string command =
      "/usr/bin/python3 -I -c 'import ssl, sys\n"
      "out = ssl.MemoryBIO()\n"
      "client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=\"" +
      name +
      "\")\n"
      "try: client.do_handshake()\n"
      "except ssl.SSLWantReadError: sys.stdout.buffer.write(out.read())'";
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
  std::string bytes;
  std::array<char, 4096> buffer;
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), output.get())) {
    bytes.append(buffer.data(), got);
  }
  return bytes;
}

TEST(ClientHello, OfARealClientIsRead) {
  const std::string named = hello_of_openssl("a.test");
  ASSERT_GT(named.size(), 100U);
  EXPECT_EQ(read(named).state, State::complete);
  EXPECT_EQ(read(named, 1).name, "a.test");
  EXPECT_FALSE(read(named).encrypted);
  EXPECT_EQ(read(hello_of_openssl("192.0.2.7")).name, std::nullopt) << "an address is no name";
}

RC_GTEST_PROP(ClientHello, IsTheSameInAnyPieces, ()) {
  std::string bytes = client_hello("a.test", *rc::gen::inRange<std::size_t>(1, 60));
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
  bytes[at] = static_cast<char>(*rc::gen::arbitrary<std::uint8_t>());
  const Read whole = read(bytes);
  const Read pieces = read(bytes, *rc::gen::inRange<std::size_t>(1, 50));
  RC_ASSERT(whole.state == pieces.state);
  RC_ASSERT(whole.name == pieces.name);
}

}  // namespace
}  // namespace casemate
