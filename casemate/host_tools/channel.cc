#include "casemate/host_tools/channel.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/channel_state.h"

namespace casemate {

void HostToolChannel::State::log(std::string_view text) const {
  write_log(options.log, LogLevel::warning, fmt::format("host tools: run {}: {}", run.id(), text));
}

HostToolChannel::HostToolChannel(HostToolRun& run, HostToolChannelOptions options) {
  if (options.max_in_flight == 0) {
    throw InvalidArgument("max_in_flight is 0; it takes at least 1",
                          "no request would ever be read");
  }
  for (const auto& [name, patience] : {std::pair("send_patience", options.send_patience),
                                       std::pair("request_patience", options.request_patience)}) {
    if (patience.count() > 0) continue;
    throw InvalidArgument(fmt::format("{} is {} ns; it must be above 0", name, patience.count()),
                          "callers would be cut off for being a moment late");
  }
  state_ = std::make_shared<State>(run, std::move(options));
}

HostToolChannel::~HostToolChannel() { close(); }

int HostToolChannel::socket() const { return state_->listening.get(); }

void HostToolChannel::serve() { state_->serve(); }

void HostToolChannel::close() noexcept {
  if (!owner_.is_current()) return;
  try {
    state_->close();
  } catch (const std::exception& error) {
    state_->log(fmt::format("closing the channel: {}", escape_for_display(error.what())));
  }
}

}  // namespace casemate
