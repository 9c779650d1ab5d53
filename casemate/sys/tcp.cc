#include "casemate/sys/tcp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "casemate/sys/error.h"

namespace casemate::sys {

LoopbackListener listen_on_loopback() {
  LoopbackListener listener;
  listener.socket.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket) throw_errno("socket(AF_INET)");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.socket.get(), generic, size) != 0) throw_errno("bind(127.0.0.1)");
  if (listen(listener.socket.get(), SOMAXCONN) != 0) throw_errno("listen(127.0.0.1)");
  if (getsockname(listener.socket.get(), generic, &size) != 0) throw_errno("getsockname");
  listener.port = ntohs(address.sin_port);
  return listener;
}

}  // namespace casemate::sys
