#include "casemate/host_tools/channel_frame.h"

#include <algorithm>
#include <utility>

namespace casemate {
namespace {

constexpr std::size_t kLargeBytes = 64 * 1024;

std::uint32_t number_at(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint32_t number = 0;
  for (std::size_t index = 0; index < size; ++index) {
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + index]))
              << (8 * index);
  }
  return number;
}

void append_number(std::string& bytes, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift);
}

}  // namespace

std::string encode_answer(std::uint32_t id, const HostToolAnswer& answer) {
  std::string bytes;
  bytes.reserve(kAnswerFramingBytes + answer.text().size());
  append_number(
      bytes, static_cast<std::uint32_t>(answer.text().size() + kAnswerFramingBytes - kLengthBytes));
  append_number(bytes, id);
  bytes += answer.ok() ? '\0' : '\1';
  bytes += answer.text();
  return bytes;
}

std::string encode_try_again(std::string_view why) {
  std::string bytes = encode_answer(0, HostToolAnswer::refused(why));
  bytes[kAnswerFramingBytes - 1] = '\2';
  return bytes;
}

bool ChannelReader::feed(std::string_view bytes, std::vector<ChannelRequest>& requests) {
  while (!bytes.empty()) {
    if (missing_ == 0) {
      const std::size_t count = std::min(bytes.size(), kLengthBytes - length_.size());
      length_ += bytes.substr(0, count);
      bytes.remove_prefix(count);
      if (length_.size() < kLengthBytes) return true;
      if (!begin()) return false;
      continue;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), missing_));
    // The id is kept also of what is skipped, so that the refusal finds its way.
    const std::size_t kept =
        skipping_ ? std::min(count, kMinRequestBytes - std::min(kMinRequestBytes, body_.size()))
                  : count;
    body_ += bytes.substr(0, kept);
    bytes.remove_prefix(count);
    missing_ -= count;
    if (missing_ == 0) finish(requests);
  }
  return true;
}

bool ChannelReader::begin() {
  announced_ = missing_ = number_at(length_, 0, kLengthBytes);
  length_.clear();
  skipping_ = missing_ > max_bytes_;
  return missing_ >= kMinRequestBytes && missing_ <= std::max(kMaxSkippedBytes, max_bytes_);
}

void ChannelReader::finish(std::vector<ChannelRequest>& requests) {
  ChannelRequest request;
  request.id = number_at(body_, 0, 4);
  request.bytes = announced_;
  request.no_room = std::exchange(no_room_, false);
  request.too_large = skipping_ && !request.no_room;
  if (!skipping_) {
    const std::size_t name = number_at(body_, 4, 2);
    request.malformed = kMinRequestBytes + name > body_.size();
    if (!request.malformed) {
      request.name = body_.substr(kMinRequestBytes, name);
      request.arguments = std::move(body_);
      request.arguments.erase(0, kMinRequestBytes + name);
      // A string that grew has up to twice what it needs.
      if (request.arguments.size() > kLargeBytes) request.arguments.shrink_to_fit();
    }
  }
  body_ = {};
  skipping_ = false;
  requests.push_back(std::move(request));
}

void ChannelReader::skip_current() {
  skipping_ = true;
  no_room_ = true;
  body_.resize(std::min(body_.size(), kMinRequestBytes));
  body_.shrink_to_fit();
}

}  // namespace casemate
