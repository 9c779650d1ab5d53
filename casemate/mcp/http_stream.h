#pragma once

// A connection's bytes, with or without TLS: what Asio and Beast read from and write to.

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace casemate::mcp {

class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;

  // `tls` may be null; it outlives the stream.
  HttpStream(Socket socket, boost::asio::ssl::context* tls) {
    if (tls != nullptr) {
      secure_.emplace(std::move(socket), *tls);
    } else {
      plain_.emplace(std::move(socket));
    }
  }

  executor_type get_executor() { return socket().get_executor(); }
  Socket& socket() { return plain_ ? *plain_ : secure_->next_layer(); }

  // Completes at once without TLS.
  template <typename Handler>
  void async_handshake(Handler handler) {
    if (plain_) return handler(boost::system::error_code());
    secure_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (plain_) {
      plain_->async_read_some(buffers, std::forward<Handler>(handler));
    } else {
      secure_->async_read_some(buffers, std::forward<Handler>(handler));
    }
  }

  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (plain_) {
      plain_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      secure_->async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

 private:
  std::optional<Socket> plain_;
  std::optional<boost::asio::ssl::stream<Socket>> secure_;
};

}  // namespace casemate::mcp
