// casemate-call NAME JSON: a function of the host's, from a shell or any language that can start a
// program. The frames are those of casemate/host_tools/channel_frame.h. What NAME and JSON may be
// is for the host to judge; here only their sizes are.

#include <asm-generic/errno.h>
#include <asm/fcntl.h>
#include <linux/time_types.h>
#include <linux/un.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

#include "casemate/guest/agent/call_tool/kernel.h"

namespace casemate::call_tool {
namespace {

enum Status : int { kValue = 0, kRefused = 1, kUsage = 2 };

constexpr std::size_t kHeaderBytes = 9;
constexpr std::size_t kRequestHeaderBytes = 10;
// Its highest bit: nothing more comes on the connection before the answer.
constexpr std::uint32_t kId = 0x80000001;
constexpr std::size_t kMaxNameBytes = 0xFFFF;
// The host reads no larger request over.
constexpr std::size_t kMaxRequestBytes = 64 * 1024 * 1024;
constexpr std::size_t kMaxAnswerBytes = 1024 * 1024 * 1024;
// As long as the host says that it has too many connections: 30 s.
constexpr int kMaxTries = 6000;
constexpr long kPauseNanoseconds = 5'000'000;
// include/linux/socket.h
constexpr long kStream = 1;
constexpr long kCloseOnExec = 02000000;
constexpr long kNoSignal = 0x4000;

constexpr char kVariable[] = "CASEMATE_HOST_TOOLS=";
constexpr char kDefaultAddress[] = "/casemate/call/host-tools.sock";

constexpr char kHelp[] =
    "casemate-call NAME JSON\n"
    "Calls the host's function NAME with JSON, an object of arguments ('-': from standard input),\n"
    "and prints the JSON value that it answers with. Exit status: 0; 1 when the host refused, its\n"
    "sentence on standard error; 2 for words that are none of these.\n"
    "Example: casemate-call lookup '{\"key\": \"a\"}'\n";

std::size_t length_of(const char* text) {
  std::size_t length = 0;
  while (text[length] != '\0') ++length;
  return length;
}

bool same(const char* left, const char* right) {
  while (*left != '\0' && *left == *right) ++left, ++right;
  return *left == *right;
}

bool write_all(int to, const char* bytes, std::size_t count) {
  while (count > 0) {
    const long written = system_call(SYS_write, to, address(bytes), static_cast<long>(count));
    if (written == -EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
  return true;
}

void say(const char* text) { write_all(2, text, length_of(text)); }

int say(Status status, const char* text) {
  say(text);
  return status;
}

// Memory that grows; null when there is none to be had.
class Buffer {
 public:
  char* data() { return data_; }
  std::size_t size() const { return size_; }

  bool resize(std::size_t bytes) {
    const long mapped =
        data_ == nullptr ? system_call(SYS_mmap, 0, static_cast<long>(bytes),
                                       PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                         : system_call(SYS_mremap, address(data_), static_cast<long>(size_),
                                       static_cast<long>(bytes), MREMAP_MAYMOVE);
    if (mapped < 0 && mapped > -4096) return false;
    data_ = reinterpret_cast<char*>(mapped);
    size_ = bytes;
    return true;
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

void put_number(char* to, std::size_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<char>(value >> (8 * i));
}

std::uint32_t number_at(const char* from) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(from[i]);
  return value;
}

// -- The request
// -----------------------------------------------------------------------------------

struct Request {
  Buffer bytes;
  std::size_t size = 0;
};

const char* append_input(Request& request) {
  while (true) {
    if (request.size == request.bytes.size()) {
      if (request.size > kMaxRequestBytes) return "casemate-call: the arguments are over 64 MiB\n";
      if (!request.bytes.resize(2 * request.size)) return "casemate-call: out of memory\n";
    }
    const long got = system_call(SYS_read, 0, address(request.bytes.data() + request.size),
                                 static_cast<long>(request.bytes.size() - request.size));
    if (got == -EINTR) continue;
    if (got < 0) return "casemate-call: standard input cannot be read\n";
    if (got == 0) return nullptr;
    request.size += static_cast<std::size_t>(got);
  }
}

// Null, or what is wrong with the words.
const char* make_request(const char* name, const char* json, Request& request) {
  const std::size_t name_bytes = length_of(name);
  if (name_bytes == 0 || name_bytes > kMaxNameBytes) {
    return "casemate-call: a name has 1 to 65535 bytes\n";
  }
  const bool from_input = same(json, "-");
  const std::size_t json_bytes = from_input ? 0 : length_of(json);
  const std::size_t head = kRequestHeaderBytes + name_bytes;
  if (!request.bytes.resize(head + json_bytes + (from_input ? 64 * 1024 : 0))) {
    return "casemate-call: out of memory\n";
  }
  char* bytes = request.bytes.data();
  put_number(bytes + 4, kId, 4);
  put_number(bytes + 8, name_bytes, 2);
  __builtin_memcpy(bytes + kRequestHeaderBytes, name, name_bytes);
  __builtin_memcpy(bytes + head, json, json_bytes);
  request.size = head + json_bytes;
  if (from_input) {
    if (const char* failure = append_input(request)) return failure;
  }
  if (request.size > kMaxRequestBytes) return "casemate-call: the arguments are over 64 MiB\n";
  put_number(request.bytes.data(), request.size - 4, 4);
  return nullptr;
}

// -- The exchange
// ----------------------------------------------------------------------------------

bool make_address(char** environment, sockaddr_un& address) {
  const char* path = kDefaultAddress;
  for (; *environment != nullptr; ++environment) {
    const char* entry = *environment;
    std::size_t at = 0;
    while (kVariable[at] != '\0' && entry[at] == kVariable[at]) ++at;
    if (kVariable[at] == '\0') path = entry + at;
  }
  const std::size_t bytes = length_of(path);
  if (bytes == 0 || bytes >= sizeof address.sun_path) return false;
  address.sun_family = 1;  // AF_UNIX
  __builtin_memcpy(address.sun_path, path, bytes + 1);
  return true;
}

// Why there may be no answer any more stands in what can be read, so it is no failure here.
void send_all(int socket, const char* bytes, std::size_t count) {
  while (count > 0) {
    const long sent =
        system_call(SYS_sendto, socket, address(bytes), static_cast<long>(count), kNoSignal, 0, 0);
    if (sent == -EINTR) continue;
    if (sent <= 0) return;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
}

bool receive_all(int socket, char* bytes, std::size_t count) {
  while (count > 0) {
    const long got = system_call(SYS_read, socket, address(bytes), static_cast<long>(count));
    if (got == -EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

struct Answer {
  std::uint32_t id = 0;
  bool is_value = false;
  // The host has too many connections and read nothing of this one.
  bool try_again = false;
  Buffer text;
  std::size_t size = 0;
};

// Null, or the sentence that says why there is none.
const char* exchange(const sockaddr_un& host, Request& request, Answer& answer) {
  const long socket = system_call(SYS_socket, host.sun_family, kStream | kCloseOnExec, 0);
  if (socket < 0) return "Error: no socket is to be had.\n";
  long connected = 0;
  do {
    connected = system_call(SYS_connect, socket, address(&host), static_cast<long>(sizeof host));
  } while (connected == -EINTR);
  if (connected == -ENOENT) return "Error: this run has no host tools.\n";
  if (connected < 0) return "Error: the host cannot be reached.\n";
  send_all(static_cast<int>(socket), request.bytes.data(), request.size);
  constexpr const char* kLost =
      "Error: the connection to the host was lost; whether the call was made is not known.\n";
  char header[kHeaderBytes];
  if (!receive_all(static_cast<int>(socket), header, sizeof header)) return kLost;
  const std::size_t bytes = number_at(header);
  answer.id = number_at(header + 4);
  answer.is_value = header[8] == 0;
  answer.try_again = header[8] == 2 && answer.id == 0;
  const bool refusal = header[8] == 1 && (answer.id == kId || answer.id == 0);
  const bool ours = (answer.is_value && answer.id == kId) || refusal || answer.try_again;
  if (!ours || bytes < kHeaderBytes - 4 || bytes > kMaxAnswerBytes) {
    return "Error: the host's answer makes no sense.\n";
  }
  answer.size = bytes - (kHeaderBytes - 4);
  if (!answer.text.resize(answer.size + 1)) return "Error: out of memory for the answer.\n";
  if (!receive_all(static_cast<int>(socket), answer.text.data(), answer.size)) return kLost;
  answer.text.data()[answer.size] = '\n';
  system_call(SYS_close, socket);
  return nullptr;
}

int call(const sockaddr_un& host, Request& request) {
  Answer answer;
  for (int attempt = 0; attempt < kMaxTries; ++attempt) {
    if (const char* failure = exchange(host, request, answer)) return say(kRefused, failure);
    if (!answer.try_again) break;
    const __kernel_timespec pause{0, kPauseNanoseconds};
    system_call(SYS_nanosleep, address(&pause), 0);
  }
  if (!write_all(answer.is_value ? 1 : 2, answer.text.data(), answer.size + 1)) {
    return say(kRefused, "casemate-call: the answer cannot be written\n");
  }
  return answer.is_value ? kValue : kRefused;
}

}  // namespace
}  // namespace casemate::call_tool

int main(int count, char** words) {
  using namespace casemate::call_tool;
  if (count == 2 && same(words[1], "--help")) {
    return write_all(1, kHelp, sizeof kHelp - 1) ? kValue : kRefused;
  }
  if (count != 3) return say(kUsage, kHelp);
  sockaddr_un host{};
  if (!make_address(words + count + 1, host)) {
    return say(kUsage, "casemate-call: CASEMATE_HOST_TOOLS is no path of a socket\n");
  }
  Request request;
  if (const char* failure = make_request(words[1], words[2], request)) return say(kUsage, failure);
  return call(host, request);
}
