// OpenSSL's newer digest interface loads its providers at first use, for which it reads
// configuration from files and the environment of whatever process we are linked into. The older
// one is the bare algorithm. Declared deprecated, it stays for the life of OpenSSL 3.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "casemate/base/digest.h"

#include <openssl/sha.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <vector>

namespace casemate {
namespace {

std::string hex(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0x0FU];
  }
  return text;
}

}  // namespace

// None of OpenSSL's three can fail: they compute, and allocate nothing.
struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

std::string Sha256::finish_hex() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256_Final(digest.data(), &state_->context);
  return hex(digest);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.finish_hex();
}

std::string random_hex(std::size_t count) {
  std::vector<unsigned char> bytes(count);
  std::size_t filled = 0;
  while (filled < count) {
    // More than 256 bytes at once may come in parts (getrandom(2)).
    const ssize_t got = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw std::system_error(errno, std::generic_category(), "getrandom");
    }
    filled += static_cast<std::size_t>(got);
  }
  return hex(bytes);
}

}  // namespace casemate
