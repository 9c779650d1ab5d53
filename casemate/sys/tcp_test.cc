#include "casemate/sys/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::sys {
namespace {

TEST(Tcp, AListenerIsOnLoopbackOnlyAndAcceptsWhoConnects) {
  const LoopbackListener listener = listen_on_loopback();
  EXPECT_FALSE(accept_connection(listener.socket.get()));
  EXPECT_NE(fcntl(listener.socket.get(), F_GETFD) & FD_CLOEXEC, 0);

  sockaddr_in address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(getsockname(listener.socket.get(), generic, &size), 0);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(ntohs(address.sin_port), listener.port);

  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), generic, size), 0);
  pollfd ready{.fd = listener.socket.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll_until({&ready, 1}, std::chrono::steady_clock::now() + std::chrono::seconds(20)),
            1);
  const UniqueFd connection = accept_connection(listener.socket.get());
  EXPECT_TRUE(connection);
  EXPECT_NE(fcntl(connection.get(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace casemate::sys
