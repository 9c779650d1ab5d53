#pragma once

// HTTP to an engine, one connection a request. Beast stays in the source.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/backends/docker/attached_stream.h"
#include "casemate/backends/docker/engine_address.h"
#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::docker {

// Of an engine behind TCP: files in PEM, as docker's clients have them in DOCKER_CERT_PATH.
struct EngineTls {
  // Who signed the engine's certificate.
  std::string ca_file{};
  // This client's own; empty: the engine does not ask.
  std::string certificate_file{};
  std::string key_file{};
};

struct EngineRequest {
  std::string_view method;
  // From the first slash, version included, encoded.
  std::string target;
  std::string body{};
  std::string_view content_type = "application/json";
  // How long the engine may say nothing at all.
  std::chrono::seconds silence{60};
  // Of a request whose effect nobody would know of without its answer: how long that is waited for
  // past the caller's bounds.
  std::chrono::seconds grace{0};
  // Gets the body as it comes, in any pieces; empty: it stands in the reply. What it throws is
  // thrown.
  std::function<void(std::string_view)> on_body{};
};

struct EngineReply {
  unsigned status = 0;
  std::string body{};
};

// Talks to one engine. Reads no variable of the environment: a proxy of the host's never sees what
// goes to an engine. No thread is started; every wait ends by the caller's `CallControl` and by
// `silence`. Thread-safe.
class EngineClient {
 public:
  // `tls` counts for TCP; null there is plain text, which gives whoever listens in root on the
  // engine's machine. Throws `InvalidArgument` for files that cannot be used.
  EngineClient(EngineAddress address, const EngineTls* tls);
  ~EngineClient();

  const EngineAddress& address() const { return address_; }

  // Throws `SandboxUnavailable` where the engine cannot be reached or does not speak HTTP,
  // `SandboxTimeout` and `SandboxCancelled` by `control`. Every status is a reply.
  EngineReply send(const EngineRequest& request, const CallControl& control) const;

  class Pending;

  // Sends a request upon which the connection is to become a stream, and gives that. Throws as
  // `send`; `reply` gets the answer of an engine that says no, and there is no stream then. With
  // the answer of `end`, where there is one, the stream is over whatever the connection does.
  std::optional<AttachedStream> attach(const EngineRequest& request, std::optional<Pending> end,
                                       EngineReply& reply, const Log& log,
                                       const CallControl& control) const;

  // Sends a request whose answer comes when something happens, over a Unix socket.
  Pending begin(const EngineRequest& request) const;

 private:
  struct Tls;
  template <typename Stream>
  EngineReply talk(Stream& stream, void* io, const EngineRequest& request,
                   const CallControl& control, std::string* behind = nullptr) const;
  template <typename Act>
  auto with_stream(const EngineRequest& request, const CallControl& control, const Act& act) const;

  EngineAddress address_;
  std::unique_ptr<Tls> tls_;
};

// An answer that is waited for beside other things. For one thread.
class EngineClient::Pending {
 public:
  explicit Pending(sys::UniqueFd connection) : connection_(std::move(connection)) {}
  // Readable when there may be something new.
  int descriptor() const { return connection_.get(); }
  // Whether the answer's body has begun, or the engine broke off. Does not wait.
  bool has_answer();

 private:
  sys::UniqueFd connection_;
  // Engines send the head at once.
  std::string head_;
  bool head_is_over_ = false;
};

// As a part of a target: everything but letters, digits, '-', '.', '_' and '~' as %XX.
std::string encode_for_target(std::string_view text);

}  // namespace casemate::docker
