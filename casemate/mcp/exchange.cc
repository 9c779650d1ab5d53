#include <algorithm>

#include "casemate/mcp/serving.h"

namespace casemate::mcp {

Exchange::~Exchange() {
  if (!batch_.empty()) outlet_->send({batch_ + "]"});
  outlet_->finished();
}

void Exchange::reply(const std::optional<RequestId>& id, std::string text, int http_status) {
  if (form_ == Form::single) {
    outlet_->send({std::move(text), Outgoing::Kind::reply, http_status});
    return;
  }
  const std::lock_guard lock(mutex_);
  if (id && text.size() > kMaxBatchBytes - std::min(batch_.size(), kMaxBatchBytes)) {
    text = error_text(id, ErrorCode::internal_error,
                      "The answers to this batch are too large together: ask for this one alone");
  }
  batch_ += batch_.empty() ? "[" : ",";
  batch_ += text;
}

void Exchange::notify(std::string text) {
  outlet_->send({std::move(text), Outgoing::Kind::notification});
}

void Exchange::ask(std::string text) { outlet_->send({std::move(text), Outgoing::Kind::request}); }

bool Exchange::has_room() const { return outlet_->has_room(); }

bool Exchange::wait_for_room(const std::stop_token& stop) const {
  return outlet_->wait_for_room(stop);
}

}  // namespace casemate::mcp
