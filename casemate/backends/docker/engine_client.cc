#include "casemate/backends/docker/engine_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "casemate/backends/docker/engine_remedy.h"
#include "casemate/backends/docker/stream_carrier.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/subordinate_ids.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::docker {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;
using Clock = std::chrono::steady_clock;
using sys::UniqueFd;

// Above what an engine says of thousands of containers; bounds this process's memory.
constexpr std::uint64_t kMaxReply = 64 * 1024 * 1024;
constexpr std::uint32_t kMaxHeader = 64 * 1024;

[[noreturn]] void unreachable(const EngineAddress& address, std::string_view why,
                              const local::Remedy& remedy = {}) {
  constexpr char kHint[] =
      "start it, or name another (DockerBackendOptions::host); its socket must be this user's to "
      "write";
  throw Carrying<SandboxUnavailable, local::Remedy>(
      SandboxUnavailable(fmt::format("the engine at {} cannot be reached: {}",
                                     escape_for_display(address.text), why),
                         remedy.hint.empty() ? kHint : remedy.hint),
      remedy);
}

[[noreturn]] void throw_over(const CallControl& control, std::chrono::seconds silence) {
  if (control.stop.stop_requested()) throw SandboxCancelled("cancelled while the engine worked");
  if (control.deadline && Clock::now() >= *control.deadline) {
    throw SandboxTimeout("the engine did not answer by the deadline");
  }
  throw SandboxTimeout(fmt::format("the engine said nothing for {} s", silence.count()),
                       "look at the engine's log");
}

UniqueFd connect_unix(const EngineAddress& address) {
  UniqueFd made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) unreachable(address, std::strerror(errno));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, sizeof name.sun_path - 1);
  while (connect(made.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) < 0) {
    const int error = errno;
    if (error != EINTR) {
      unreachable(address, std::strerror(error),
                  remedy_for_socket(address.path, error, local::name_of_user(geteuid()),
                                    is_engine_installed()));
    }
  }
  return made;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

UniqueFd connect_tcp(const EngineAddress& address, const CallControl& control,
                     std::chrono::seconds silence) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (failed != 0) unreachable(address, gai_strerror(failed));
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  const UniqueFd stopped = sys::make_event();
  const std::stop_callback on_stop(control.stop, [&] { sys::raise_event(stopped.get()); });
  auto until = Clock::now() + silence;
  if (control.deadline) until = std::min(until, *control.deadline);
  int error = EHOSTUNREACH;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    UniqueFd made(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made) continue;
    if (connect(made.get(), each->ai_addr, each->ai_addrlen) == 0) return made;
    error = errno;
    if (error != EINPROGRESS) continue;
    pollfd entries[] = {{made.get(), POLLOUT, 0}, {stopped.get(), POLLIN, 0}};
    if (sys::poll_until(entries, until) == 0 || entries[1].revents != 0) {
      throw_over(control, silence);
    }
    socklen_t size = sizeof error;
    getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return made;
  }
  unreachable(address, std::strerror(error));
}

http::request<http::string_body> message_of(const EngineRequest& request) {
  http::request<http::string_body> message;
  message.method_string({request.method.data(), request.method.size()});
  message.target({request.target.data(), request.target.size()});
  message.version(11);
  message.set(http::field::host, "engine");
  message.set(http::field::user_agent, "casemate");
  message.set(http::field::connection, "close");
  if (!request.body.empty()) {
    message.set(http::field::content_type,
                {request.content_type.data(), request.content_type.size()});
  }
  message.body() = request.body;
  message.prepare_payload();
  return message;
}

}  // namespace

struct EngineClient::Tls {
  asio::ssl::context context{asio::ssl::context::tls_client};
};

EngineClient::EngineClient(EngineAddress address, const EngineTls* tls)
    : address_(std::move(address)) {
  if (tls == nullptr || address_.kind != EngineAddress::Kind::tcp) return;
  tls_ = std::make_unique<Tls>();
  asio::ssl::context& context = tls_->context;
  const auto use = [](const error_code& error, std::string_view what, const std::string& path) {
    if (!error) return;
    throw InvalidArgument(fmt::format("the {} in '{}' cannot be used: {}", what,
                                      escape_for_display(path), error.message()),
                          "give files in PEM, as in DOCKER_CERT_PATH");
  };
  error_code error;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_verify_mode(asio::ssl::verify_peer);
  use(context.load_verify_file(tls->ca_file, error), "authority's certificate", tls->ca_file);
  if (tls->certificate_file.empty()) return;
  use(context.use_certificate_chain_file(tls->certificate_file, error), "certificate",
      tls->certificate_file);
  use(context.use_private_key_file(tls->key_file, asio::ssl::context::pem, error), "key",
      tls->key_file);
}

EngineClient::~EngineClient() = default;

template <typename Stream>
EngineReply EngineClient::talk(Stream& stream, void* context, const EngineRequest& request,
                               const CallControl& control, std::string* behind) const {
  auto& io = *static_cast<asio::io_context*>(context);
  http::request<http::string_body> message = message_of(request);
  if (behind != nullptr) {
    message.set(http::field::connection, "Upgrade");
    message.set(http::field::upgrade, "tcp");
  }
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxReply);
  parser.header_limit(kMaxHeader);
  if (request.method == "HEAD") parser.skip(true);

  // One step at a time, each within the engine's patience and the caller's bounds.
  std::optional<error_code> done;
  const std::stop_callback on_stop(control.stop, [&io] { asio::post(io, [&io] { io.stop(); }); });
  const auto step = [&](const auto& begin) {
    done.reset();
    begin([&done](const error_code& error, std::size_t) { done = error; });
    auto until = Clock::now() + request.silence;
    if (control.deadline) until = std::min(until, *control.deadline + request.grace);
    bool stopped = false;
    while (!done) {
      if (control.stop.stop_requested() && !std::exchange(stopped, true)) {
        until = std::min(until, Clock::now() + request.grace);
      }
      io.restart();
      if (io.run_one_until(until) == 0 && Clock::now() >= until) break;
    }
    if (!done) throw_over(control, request.silence);
    return *done;
  };
  const auto must = [&](const error_code& error) {
    if (!error) return;
    throw SandboxUnavailable(fmt::format("the engine at {} broke off: {}",
                                         escape_for_display(address_.text), error.message()),
                             "look at the engine's log");
  };
  if constexpr (requires { stream.next_layer(); }) {
    must(step([&](auto&& handler) {
      stream.async_handshake(asio::ssl::stream_base::client,
                             [handler](const error_code& error) { handler(error, 0); });
    }));
  }
  must(step([&](auto&& handler) { http::async_write(stream, message, handler); }));
  must(step([&](auto&& handler) { http::async_read_header(stream, buffer, parser, handler); }));
  if (behind != nullptr && parser.get().result_int() == 101) {
    *behind = boost::beast::buffers_to_string(buffer.data());
    io.restart();
    return {101, {}};
  }
  while (!parser.is_done()) {
    const error_code error =
        step([&](auto&& handler) { http::async_read_some(stream, buffer, parser, handler); });
    // A body that ends with the connection; TLS peers often end theirs without a word.
    if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) {
      error_code ended;
      parser.put_eof(ended);
      must(ended);
      break;
    }
    must(error);
    std::string& body = parser.get().body();
    if (!request.on_body || body.empty()) continue;
    request.on_body(body);
    body.clear();
  }
  return {parser.get().result_int(), std::move(parser.get().body())};
}

// In this order: a stream is on its context until its end.
template <typename Stream>
struct Connected {
  std::unique_ptr<asio::io_context> io;
  std::unique_ptr<Stream> stream;
};

// Calls `act` with a `Connected` of the address's kind.
template <typename Act>
auto EngineClient::with_stream(const EngineRequest& request, const CallControl& control,
                               const Act& act) const {
  if (address_.kind == EngineAddress::Kind::unusable) throw InvalidArgument(address_.why);
  auto io = std::make_unique<asio::io_context>(1);
  error_code error;
  if (address_.kind == EngineAddress::Kind::unix_socket) {
    UniqueFd connected = connect_unix(address_);
    auto socket = std::make_unique<asio::local::stream_protocol::socket>(*io);
    socket->assign(asio::local::stream_protocol(), connected.get(), error);
    if (error) unreachable(address_, error.message());
    static_cast<void>(connected.release());
    return act(Connected{std::move(io), std::move(socket)});
  }
  UniqueFd connected = connect_tcp(address_, control, request.silence);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getpeername(connected.get(), reinterpret_cast<sockaddr*>(&name), &size);
  auto socket = std::make_unique<asio::ip::tcp::socket>(*io);
  socket->assign(name.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                 connected.get(), error);
  if (error) unreachable(address_, error.message());
  static_cast<void>(connected.release());
  // A frame of a channel is often all there is to send.
  socket->set_option(asio::ip::tcp::no_delay(true), error);
  socket->set_option(asio::socket_base::keep_alive(true), error);
  if (!tls_) return act(Connected{std::move(io), std::move(socket)});
  auto stream =
      std::make_unique<asio::ssl::stream<asio::ip::tcp::socket>>(std::move(*socket), tls_->context);
  SSL_set_tlsext_host_name(stream->native_handle(), address_.host.c_str());
  stream->set_verify_callback(asio::ssl::host_name_verification(address_.host));
  return act(Connected{std::move(io), std::move(stream)});
}

EngineReply EngineClient::send(const EngineRequest& request, const CallControl& control) const {
  return with_stream(request, control, [&](auto connected) {
    return talk(*connected.stream, connected.io.get(), request, control);
  });
}

std::optional<AttachedStream> EngineClient::attach(const EngineRequest& request,
                                                   std::optional<Pending> end, EngineReply& reply,
                                                   const Log& log,
                                                   const CallControl& control) const {
  return with_stream(request, control, [&](auto connected) -> std::optional<AttachedStream> {
    auto& [io, stream] = connected;
    using Stream = typename std::remove_reference_t<decltype(stream)>::element_type;
    std::string behind;
    reply = talk(*stream, io.get(), request, control, &behind);
    if (reply.status != 101) return std::nullopt;
    auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
    asio::local::stream_protocol::socket near(*io);
    error_code error;
    near.assign(asio::local::stream_protocol(), theirs.get(), error);
    if (error) unreachable(address_, error.message());
    static_cast<void>(theirs.release());
    asio::posix::stream_descriptor ended(*io);
    if (end) {
      UniqueFd watched(fcntl(end->descriptor(), F_DUPFD_CLOEXEC, 3));
      if (!watched) unreachable(address_, std::strerror(errno));
      ended.assign(watched.get(), error);
      if (error) unreachable(address_, error.message());
      static_cast<void>(watched.release());
    }
    auto carrier = std::make_unique<StreamCarrier<Stream>>(
        std::move(io), std::move(stream), std::move(near),
        ContainersEnd{std::move(end), std::move(ended)}, std::move(behind), log);
    return AttachedStream(guest::StreamEnd::of(std::move(ours)), std::move(carrier));
  });
}

EngineClient::Pending EngineClient::begin(const EngineRequest& request) const {
  asio::io_context io{1};
  UniqueFd connected = connect_unix(address_);
  UniqueFd kept(fcntl(connected.get(), F_DUPFD_CLOEXEC, 3));
  if (!kept) unreachable(address_, std::strerror(errno));
  error_code error;
  asio::local::stream_protocol::socket socket(io);
  socket.assign(asio::local::stream_protocol(), connected.get(), error);
  if (error) unreachable(address_, error.message());
  static_cast<void>(connected.release());
  http::write(socket, message_of(request), error);
  if (error) unreachable(address_, error.message());
  return Pending(std::move(kept));
}

bool EngineClient::Pending::has_answer() {
  char bytes[4096];
  while (true) {
    const ssize_t count = recv(connection_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno != EAGAIN;
    if (count == 0 || head_is_over_) return true;
    head_.append(bytes, static_cast<std::size_t>(count));
    const std::size_t end = head_.find("\r\n\r\n");
    if (end == head_.npos) {
      if (head_.size() > kMaxHeader) return true;
      continue;
    }
    if (head_.size() > end + 4) return true;
    head_is_over_ = true;
  }
}

std::string encode_for_target(std::string_view text) {
  std::string encoded;
  for (const char letter : text) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '-' || letter == '.' ||
                       letter == '_' || letter == '~';
    if (plain) {
      encoded += letter;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return encoded;
}

}  // namespace casemate::docker
