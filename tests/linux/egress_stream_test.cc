// Egress of a sandbox that is reached by one multiplexed stream: the doors of each call lead over
// it to that call's gateway.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "casemate/conformance/conformance.h"
#include "casemate/conformance/subject.h"
#include "casemate/egress/gateway_test.h"
#include "tests/linux/linux_test.h"
#include "tests/support/name_server.h"
#include "tests/support/own_network.h"
#include "tests/support/streamed_linux_backend.h"

namespace casemate::linux_tests {
namespace {

class LinuxEgressOverAStream : public LinuxTest {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
    LinuxTest::SetUp();
  }
};

TEST_F(LinuxEgressOverAStream, TheEgressSuiteHoldsByName) {
  const auto answer = [](const Stream& stream) {
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos) {
      const std::string byte = stream.read(1);
      if (byte.empty()) return;
      head += byte;
    }
    stream.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  };
  const NameServer names({{"allowed.test", kPublicIpv4}, {"denied.test", kOtherIpv4}});
  const Origin origin(kPublicIpv4, 80, answer);
  const Origin other(kOtherIpv4, 80, answer);
  class Named : public conformance::Subject {
   public:
    using Subject::Subject;
    std::optional<conformance::EgressTargets> egress_targets() override {
      return conformance::EgressTargets{.allowed_url = "http://allowed.test/",
                                        .denied_url = "http://denied.test/",
                                        .allow = {HostPattern::parse("allowed.test")}};
    }
  };
  Named subject(std::make_shared<StreamedLinuxBackend>());
  conformance::ConformanceOptions options;
  options.suites = {conformance::Suite::egress};
  const conformance::Report report = conformance::run_conformance(subject, options);
  EXPECT_EQ(report.failures(), "");
  EXPECT_EQ(report.count(conformance::Status::passed), 4U);
  EXPECT_EQ(other.connections(), 0);
}

// Both ways at once, more than any window.
TEST_F(LinuxEgressOverAStream, ManyBytesGoBothWaysAtOnce) {
  const NameServer names(std::map<std::string, std::string>{{"allowed.test", kPublicIpv4}});
  const Origin origin(kPublicIpv4, 80, [](const Stream& stream) {
    for (std::string bytes = stream.read(65536); !bytes.empty(); bytes = stream.read(65536)) {
      stream.send(bytes);
    }
  });
  StreamedLinuxBackend backend;
  SandboxSpec spec = LinuxTest::spec();
  spec.egress = Egress::allowlist;
  spec.egress_allow = {HostPattern::parse("allowed.test")};
  const auto sandbox = backend.acquire(key(), spec, {});
  const ExecResult result = sandbox->exec(python(R"py(
import socket, threading
s = socket.create_connection(("allowed.test", 80))
size = 4_000_000
def send():
    s.sendall(b"x" * size)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = 0
while piece := s.recv(65536): got += len(piece)
print(got == size)
)py"),
                                          {});
  EXPECT_EQ(result.stdout, "True\n") << result.stderr;
  backend.dispose(key());
}

}  // namespace
}  // namespace casemate::linux_tests
