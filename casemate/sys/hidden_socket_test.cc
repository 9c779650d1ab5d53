#include "casemate/sys/hidden_socket.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "casemate/sys/socket.h"

namespace casemate::sys {
namespace {

namespace fs = std::filesystem;

class HiddenSocket : public testing::Test {
 protected:
  HiddenSocket() {
    std::string pattern = "/tmp/casemate-hidden-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~HiddenSocket() override { fs::remove_all(directory_); }

  fs::path directory_;
  UniqueFd socket_ = make_stream_socket();
};

TEST_F(HiddenSocket, IsReachedByItsAddressAlone) {
  const UniqueFd address = bind_hidden(socket_.get(), directory_);
  EXPECT_TRUE(fs::is_empty(directory_));
  start_listening(socket_.get());
  const UniqueFd connection = connect_hidden(address.get());
  ASSERT_TRUE(connection);
  const UniqueFd accepted = accept_connection(socket_.get());
  ASSERT_TRUE(accepted);
  send_message(connection.get(), std::string("x"), {}, Blocking::yes);
  std::string got(1, '\0');
  EXPECT_EQ(receive_bytes(accepted.get(), got, Blocking::no).bytes, 1U);
}

TEST_F(HiddenSocket, IsRefusedBeforeAnybodyListensAndAfterwards) {
  const UniqueFd address = bind_hidden(socket_.get(), directory_);
  EXPECT_FALSE(connect_hidden(address.get()));
  start_listening(socket_.get());
  EXPECT_TRUE(connect_hidden(address.get()));
  socket_.reset();
  EXPECT_FALSE(connect_hidden(address.get()));
}

TEST_F(HiddenSocket, LeavesNothingWhereItCannotBeBound) {
  bind_to_fresh_name(socket_.get());
  EXPECT_THROW(bind_hidden(socket_.get(), directory_), std::system_error);
  EXPECT_TRUE(fs::is_empty(directory_));
  EXPECT_THROW(bind_hidden(socket_.get(), directory_ / "none"), std::system_error);
}

}  // namespace
}  // namespace casemate::sys
