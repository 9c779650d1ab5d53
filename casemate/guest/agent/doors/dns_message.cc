#include "casemate/guest/agent/doors/dns_message.h"

#include <algorithm>

namespace casemate::guest {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMaxLabel = 63;
constexpr std::size_t kMaxWireName = 255;
constexpr std::size_t kMaxRemark = 100;
// Seconds. The address is the name's as long as the call lasts.
constexpr std::uint32_t kTimeToLive = 60;
constexpr std::uint16_t kTypeOpt = 41;
constexpr std::uint16_t kOptionExtendedError = 15;
constexpr std::uint16_t kProhibited = 18;
// What we would take of a query over UDP (dnsflagday.net, 2020).
constexpr std::uint16_t kOurPayload = 1232;

std::uint16_t u16_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[at]) << 8 |
                                    static_cast<unsigned char>(bytes[at + 1]));
}

void put16(std::string& bytes, std::uint32_t value) {
  bytes += static_cast<char>(value >> 8 & 0xff);
  bytes += static_cast<char>(value & 0xff);
}

void put32(std::string& bytes, std::uint32_t value) {
  put16(bytes, value >> 16);
  put16(bytes, value & 0xffff);
}

// The name at `at`, which is moved behind it. Absent: it is none, or is compressed, which the
// question of a query has no reason to be.
std::optional<std::string> read_name(std::string_view message, std::size_t& at) {
  const std::size_t start = at;
  std::string name;
  bool listable = true;
  while (at < message.size()) {
    const std::size_t length = static_cast<unsigned char>(message[at++]);
    if (length == 0) return listable ? name : std::string();
    if (length > kMaxLabel || length > message.size() - at || at + length - start >= kMaxWireName) {
      return std::nullopt;
    }
    if (!name.empty()) name += '.';
    for (char each : message.substr(at, length)) {
      if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
      listable = listable && ((each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') ||
                              each == '-' || each == '_');
      name += each;
    }
    at += length;
  }
  return std::nullopt;
}

// Skips records; whether there was an OPT among them. Absent: they are malformed. Their names may
// be compressed, and nobody cares for what they say.
std::optional<bool> find_opt(std::string_view message, std::size_t at, std::size_t records) {
  bool found = false;
  for (; records > 0; --records) {
    while (true) {
      if (at >= message.size()) return std::nullopt;
      const std::size_t length = static_cast<unsigned char>(message[at++]);
      if (length == 0) break;
      if (length >= 0xc0) {
        ++at;
        break;
      }
      if (length > kMaxLabel) return std::nullopt;
      at += length;
    }
    constexpr std::size_t kFixed = 10;
    if (at > message.size() || message.size() - at < kFixed) return std::nullopt;
    found = found || u16_at(message, at) == kTypeOpt;
    const std::size_t data = u16_at(message, at + 8);
    at += kFixed;
    if (data > message.size() - at) return std::nullopt;
    at += data;
  }
  return found;
}

void put_header(std::string& bytes, std::uint16_t id, bool recursion_desired, DnsCode code,
                std::uint16_t questions, std::uint16_t answers, std::uint16_t additional) {
  put16(bytes, id);
  // An answer; authoritative, for there is nobody else to ask; recursion is there for who wants it.
  put16(bytes,
        0x8400U | (recursion_desired ? 0x0100U : 0U) | 0x0080U | static_cast<std::uint32_t>(code));
  put16(bytes, questions);
  put16(bytes, answers);
  put16(bytes, 0);
  put16(bytes, additional);
}

}  // namespace

DnsReading read_dns_query(std::string_view message) {
  if (message.size() < kHeader || message.size() > kMaxDnsQuery) return {};
  DnsReading reading{.query = {}, .fault = {}, .id = u16_at(message, 0)};
  const std::uint16_t flags = u16_at(message, 2);
  if ((flags & 0x8000) != 0) return {};
  if ((flags >> 11 & 0xf) != 0) {
    reading.fault = DnsCode::not_implemented;
    return reading;
  }
  reading.fault = DnsCode::format_error;
  if (u16_at(message, 4) != 1 || u16_at(message, 6) != 0) return reading;
  DnsQuery query;
  query.id = reading.id;
  query.recursion_desired = (flags & 0x0100) != 0;
  std::size_t at = kHeader;
  const auto name = read_name(message, at);
  if (!name || message.size() - at < 4) return reading;
  query.name = *name;
  query.type = u16_at(message, at);
  query.kind = u16_at(message, at + 2);
  at += 4;
  query.question = message.substr(kHeader, at - kHeader);
  const std::size_t records = std::size_t{u16_at(message, 8)} + u16_at(message, 10);
  const auto edns = find_opt(message, at, records);
  if (!edns) return reading;
  query.edns = *edns;
  reading.fault.reset();
  reading.query = std::move(query);
  return reading;
}

std::string encode_dns_answer(const DnsQuery& query, DnsCode code,
                              const std::optional<Ipv4Bytes>& address, std::string_view remark) {
  std::string bytes;
  put_header(bytes, query.id, query.recursion_desired, code, 1, address ? 1 : 0,
             query.edns ? 1 : 0);
  bytes += query.question;
  if (address) {
    put16(bytes, 0xc000U | kHeader);  // the question's name
    put16(bytes, kDnsTypeA);
    put16(bytes, kDnsClassInternet);
    put32(bytes, kTimeToLive);
    put16(bytes, static_cast<std::uint32_t>(address->size()));
    for (const std::uint8_t byte : *address) bytes += static_cast<char>(byte);
  }
  if (!query.edns) return bytes;
  bytes += '\0';
  put16(bytes, kTypeOpt);
  put16(bytes, kOurPayload);
  put32(bytes, 0);
  remark = remark.substr(0, kMaxRemark);
  if (remark.empty()) {
    put16(bytes, 0);
    return bytes;
  }
  const auto text = static_cast<std::uint32_t>(remark.size());
  put16(bytes, text + 6);
  put16(bytes, kOptionExtendedError);
  put16(bytes, text + 2);
  put16(bytes, kProhibited);
  bytes += remark;
  return bytes;
}

std::string encode_dns_fault(std::uint16_t id, DnsCode code) {
  std::string bytes;
  put_header(bytes, id, false, code, 0, 0, 0);
  return bytes;
}

}  // namespace casemate::guest
