#include "casemate/sys/hidden_socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "casemate/sys/error.h"
#include "casemate/sys/socket.h"

namespace casemate::sys {
namespace {

// Removed with what is in it, whatever happens.
class MomentaryDirectory {
 public:
  explicit MomentaryDirectory(const std::string& parent) : path_(parent + "/casemate-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw_errno("making a directory in " + parent);
  }
  MomentaryDirectory(const MomentaryDirectory&) = delete;
  MomentaryDirectory& operator=(const MomentaryDirectory&) = delete;
  ~MomentaryDirectory() {
    unlink(socket().c_str());
    rmdir(path_.c_str());
  }
  std::string socket() const { return path_ + "/s"; }

 private:
  std::string path_;
};

}  // namespace

UniqueFd bind_hidden(int socket, const std::string& directory) {
  const MomentaryDirectory momentary(directory);
  const std::string path = momentary.socket();
  bind_to_path(socket, path);
  UniqueFd address(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!address) throw_errno("opening " + path);
  return address;
}

UniqueFd connect_hidden(int address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // The kernel follows the link to the file itself, which needs no name.
  const std::string path = "/proc/self/fd/" + std::to_string(address);
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  UniqueFd made = make_stream_socket();
  while (connect(made.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED || errno == EAGAIN) return {};
    throw_errno("connect");
  }
  return made;
}

}  // namespace casemate::sys
