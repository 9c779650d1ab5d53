#include "casemate/egress/client_hello.h"

#include <algorithm>
#include <set>
#include <utility>

namespace casemate {
namespace {

// RFC 8446: 5.1 records, 4 handshake messages, 4.1.2 the hello, 4.2 extensions; RFC 6066, 3: names.
constexpr std::uint8_t kChangeCipherSpec = 20;
constexpr std::uint8_t kAlert = 21;
constexpr std::uint8_t kHandshake = 22;
// Of the majors that some server reads past.
constexpr std::uint8_t kLastMajorVersion = 15;
constexpr std::uint8_t kMajorVersion = 3;
constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMaxRecord = 16 * 1024;
constexpr std::uint8_t kClientHello = 1;
constexpr std::size_t kMessageHeader = 4;
constexpr std::size_t kVersionAndRandom = 34;
constexpr std::uint16_t kServerName = 0;
constexpr std::uint16_t kEncryptedClientHello = 0xfe0d;
constexpr std::uint8_t kHostName = 0;

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}

// Big-endian numbers and vectors with their length in front; once something was missing, all is.
class Cutter {
 public:
  explicit Cutter(std::string_view bytes) : rest_(bytes) {}

  std::size_t number(std::size_t width) {
    std::size_t value = 0;
    for (const char byte : take(width)) value = (value << 8) | static_cast<std::uint8_t>(byte);
    return value;
  }
  std::string_view take(std::size_t count) {
    sound_ = sound_ && count <= rest_.size();
    if (!sound_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view vector(std::size_t width) { return take(number(width)); }
  bool sound() const { return sound_; }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool sound_ = true;
};

// The one host name of a list of one; nothing for anything else, an empty name included.
std::optional<std::string> only_name(std::string_view extension) {
  Cutter outer(extension);
  Cutter list(outer.vector(2));
  const std::size_t type = list.number(1);
  const std::string_view name = list.vector(2);
  const bool sound = outer.sound() && outer.ended() && list.sound() && list.ended();
  if (!sound || type != kHostName || name.empty()) return std::nullopt;
  return std::string(name);
}

// Of SSL 2: two bytes of length with the highest bit set, the message, the version it asks for.
std::optional<bool> begins_as_ssl2(std::string_view bytes) {
  if (bytes.size() > 2 && byte_at(bytes, 2) != kClientHello) return false;
  if (bytes.size() < 4) return std::nullopt;
  return byte_at(bytes, 3) <= kMajorVersion;
}

}  // namespace

std::optional<bool> begins_as_tls(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  const std::uint8_t type = byte_at(bytes, 0);
  if ((type & 0x80U) != 0) return begins_as_ssl2(bytes);
  if (type != kChangeCipherSpec && type != kAlert && type != kHandshake) return false;
  if (bytes.size() > 1 && byte_at(bytes, 1) > kLastMajorVersion) return false;
  if (bytes.size() < kRecordHeader) return std::nullopt;
  const std::size_t length = Cutter(bytes.substr(3)).number(2);
  // What is longer is another protocol's: an alert has two bytes, the other message one.
  if (type != kHandshake) return length <= (type == kAlert ? 2U : 1U);
  if (length == 0) return true;
  if (bytes.size() == kRecordHeader) return std::nullopt;
  return byte_at(bytes, kRecordHeader) == kClientHello;
}

ClientHelloReader::State ClientHelloReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (missing_ == 0) {
      if (const State state = take_header(bytes); state == State::malformed) return state;
      continue;
    }
    const std::size_t count = std::min(missing_, bytes.size());
    seen_ += count;
    if (seen_ > kMaxHelloBytes) return State::malformed;
    message_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    missing_ -= count;
    if (message_.size() < kMessageHeader) continue;
    Cutter cutter(message_);
    const std::size_t type = cutter.number(1);
    const std::size_t length = cutter.number(3);
    if (type != kClientHello || length > kMaxHelloBytes) return State::malformed;
    if (message_.size() < kMessageHeader + length) continue;
    message_.resize(kMessageHeader + length);
    return read_message() ? State::complete : State::malformed;
  }
  return State::more;
}

ClientHelloReader::State ClientHelloReader::take_header(std::string_view& rest) {
  const std::size_t count = std::min(kRecordHeader - header_.size(), rest.size());
  header_.append(rest.substr(0, count));
  rest.remove_prefix(count);
  seen_ += count;
  if (seen_ > kMaxHelloBytes) return State::malformed;
  if (header_.size() < kRecordHeader) return State::more;
  Cutter cutter(header_);
  const std::size_t type = cutter.number(1);
  const std::size_t major = cutter.number(1);
  cutter.number(1);
  missing_ = cutter.number(2);
  header_.clear();
  // A handshake record is never empty.
  const bool sound =
      type == kHandshake && major == kMajorVersion && missing_ > 0 && missing_ <= kMaxRecord;
  return sound ? State::more : State::malformed;
}

bool ClientHelloReader::read_message() {
  Cutter cutter(std::string_view(message_).substr(kMessageHeader));
  cutter.take(kVersionAndRandom);
  cutter.vector(1);  // session
  cutter.vector(2);  // cipher suites
  cutter.vector(1);  // compressions
  if (!cutter.sound()) return false;
  if (cutter.ended()) return true;  // without extensions, before TLS 1.2
  const std::string_view extensions = cutter.vector(2);
  return cutter.sound() && cutter.ended() && read_extensions(extensions);
}

bool ClientHelloReader::read_extensions(std::string_view bytes) {
  Cutter cutter(bytes);
  std::set<std::size_t> types;
  while (cutter.sound() && !cutter.ended()) {
    const std::size_t type = cutter.number(2);
    const std::string_view content = cutter.vector(2);
    // Each once: of two server names, two readers could take one each.
    if (!cutter.sound() || !types.insert(type).second) return false;
    if (type == kEncryptedClientHello) encrypted_ = true;
    if (type != kServerName) continue;
    server_name_ = only_name(content);
    if (!server_name_) return false;
  }
  return cutter.sound();
}

}  // namespace casemate
