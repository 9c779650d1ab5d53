// One side of a multiplexed stream whose other side sends whatever it likes: what comes of it is a
// refusal or events within the rules, and what is held stays within its bounds.
//
// The first byte: bit 0 the side, bit 1 whether what comes is taken at once, bits 2 to 7 the size
// of the pieces in which it comes.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "casemate/guest/stream/multiplexer.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::guest;

constexpr std::uint32_t kAllowed = 4;

class Watched : public StreamEvents {
 public:
  Watched(StreamSide side, bool takes)
      : takes_(takes), multiplexer(side, kAllowed, *this), side_(side) {}

  void on_ready() override {
    require(!ready_, "there is one hello");
    ready_ = true;
    // Something for the other side to lie about.
    while (side_ == StreamSide::host && multiplexer.can_open() && own_ < 2) {
      multiplexer.open(own_ == 0 ? ChannelKind::control : ChannelKind::listener, own_ == 0 ? 0 : 1);
      ++own_;
    }
  }
  void on_open(ChannelId channel, ChannelKind kind, ChannelId) override {
    require(ready_ && !over_, "nothing comes before the hello or after the goodbye");
    require(multiplexer.is_open(channel), "what is opened is open");
    require(side_ == StreamSide::guest || kind == ChannelKind::stream,
            "a guest opens nothing but connections");
    require(multiplexer.open_channels() <= kAllowed + 2, "no more are open than were allowed");
  }
  void on_data(ChannelId channel, std::string_view bytes) override {
    require(!bytes.empty() && bytes.size() <= kMaxStreamPayload, "data is within its bounds");
    require(!ended_[channel], "no data follows an end");
    untaken_[channel] += bytes.size();
    require(untaken_[channel] <= kChannelWindow, "no more comes than there is credit for");
    if (takes_) {
      multiplexer.taken(channel, untaken_[channel]);
      untaken_[channel] = 0;
    } else if (untaken_[channel] > kChannelWindow / 2 && !stopped_[channel]) {
      multiplexer.stop(channel);
      stopped_[channel] = true;
    }
  }
  void on_room(ChannelId channel) override {
    require(multiplexer.room(channel) != 0, "room that is told of is there");
  }
  void on_end(ChannelId channel) override {
    require(!ended_[channel], "a direction ends once");
    ended_[channel] = true;
  }
  void on_stop(ChannelId channel) override { multiplexer.end(channel); }
  void on_goodbye() override {
    over_ = true;
    require(multiplexer.open_channels() == 0, "a goodbye is the end of every channel");
  }

 private:
  const bool takes_;

 public:
  Multiplexer multiplexer;

 private:
  const StreamSide side_;
  bool ready_ = false;
  bool over_ = false;
  int own_ = 0;
  std::map<ChannelId, std::size_t> untaken_;
  std::map<ChannelId, bool> ended_;
  std::map<ChannelId, bool> stopped_;
};

}  // namespace

void fuzz_stream_messages(std::string_view bytes) {
  Input input(bytes);
  const unsigned choice = input.byte();
  const std::size_t piece = 1 + (choice >> 2) * 37;
  Watched watched((choice & 1) != 0 ? StreamSide::guest : StreamSide::host, (choice & 2) != 0);
  try {
    for (std::string_view rest = input.rest(); !rest.empty();) {
      const std::string_view part = rest.substr(0, piece);
      rest.remove_prefix(part.size());
      watched.multiplexer.receive({part.data(), part.size()});
      require(watched.multiplexer.pending().size() <= kMaxStreamPending,
              "what waits to be sent is bounded");
    }
    watched.multiplexer.receive_end();
  } catch (const ProtocolError&) {
  }
}

}  // namespace casemate::fuzz
