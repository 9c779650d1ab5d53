#pragma once

// The carrier of an attached exec over one kind of connection. For engine_client.cc alone, which
// has Asio anyway.

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "casemate/backends/docker/attached_output.h"
#include "casemate/backends/docker/attached_stream.h"
#include "casemate/backends/docker/engine_client.h"
#include "casemate/base/log.h"

namespace casemate::docker {

// An answer of the engine's that comes with the container's end, and its descriptor once more: an
// engine may leave the connection of an exec open that ended with its container.
struct ContainersEnd {
  std::optional<EngineClient::Pending> answer;
  boost::asio::posix::stream_descriptor descriptor;
};

// `io` is the context of `stream`, `near` and `end`. `first` came behind the engine's answer.
template <typename Stream>
class StreamCarrier final : public AttachedStream::Carrier {
 public:
  using Local = boost::asio::local::stream_protocol::socket;
  StreamCarrier(std::unique_ptr<boost::asio::io_context> io, std::unique_ptr<Stream> stream,
                Local near, ContainersEnd end, std::string first, Log log)
      : io_(std::move(io)),
        stream_(std::move(stream)),
        near_(std::move(near)),
        end_(std::move(end)),
        timer_(*io_),
        first_(std::move(first)),
        output_(std::move(log)) {}

  void carry() noexcept override {
    try {
      if (take(first_)) {
        read_near();
        if (end_.answer) await_end();
        io_->run();
      }
    } catch (const std::exception& error) {
      output_.tell(error.what());
    }
    boost::system::error_code ignored;
    near_.close(ignored);
    stream_->lowest_layer().close(ignored);
  }

  void finish() noexcept override {
    constexpr std::chrono::seconds kLastMoment{1};
    boost::asio::post(*io_, [this, kLastMoment] {
      timer_.expires_after(kLastMoment);
      timer_.async_wait([this](const auto&) { io_->stop(); });
    });
  }

 private:
  using Error = boost::system::error_code;

  // Gives on what the exec wrote; reads more once that is taken. False when the stream is over.
  bool take(std::string_view bytes) {
    to_near_.clear();
    if (!output_.receive(bytes, to_near_)) return false;
    if (to_near_.empty()) {
      read_far();
      return true;
    }
    boost::asio::async_write(near_, boost::asio::buffer(to_near_),
                             [this](const Error& error, std::size_t) {
                               if (error) return io_->stop();
                               read_far();
                             });
    return true;
  }
  void read_far() {
    stream_->async_read_some(boost::asio::buffer(from_far_),
                             [this](const Error& error, std::size_t count) {
                               if (error || !take({from_far_.data(), count})) io_->stop();
                             });
  }
  void await_end() {
    end_.descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                               [this](const Error& error) {
                                 if (error || end_.answer->has_answer()) return io_->stop();
                                 await_end();
                               });
  }
  void read_near() {
    near_.async_read_some(boost::asio::buffer(from_near_),
                          [this](const Error& error, std::size_t count) {
                            if (error) return io_->stop();
                            write_far(count);
                          });
  }
  void write_far(std::size_t count) {
    boost::asio::async_write(*stream_, boost::asio::buffer(from_near_.data(), count),
                             [this](const Error& error, std::size_t) {
                               if (error) return io_->stop();
                               read_near();
                             });
  }

  std::unique_ptr<boost::asio::io_context> io_;
  std::unique_ptr<Stream> stream_;
  Local near_;
  ContainersEnd end_;
  boost::asio::steady_timer timer_;
  std::string first_;
  AttachedOutput output_;
  std::string to_near_;
  std::array<char, 32 * 1024> from_far_;
  std::array<char, 32 * 1024> from_near_;
};

}  // namespace casemate::docker
