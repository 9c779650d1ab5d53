#include "casemate/mcp/serving.h"

namespace casemate::mcp {

Exchange::~Exchange() {
  if (!batch_.empty()) outlet_->send({batch_ + "]"});
  outlet_->finished();
}

void Exchange::reply(std::string text, int http_status) {
  if (form_ == Form::single) {
    outlet_->send({std::move(text), Outgoing::Kind::reply, http_status});
    return;
  }
  const std::lock_guard lock(mutex_);
  batch_ += batch_.empty() ? "[" : ",";
  batch_ += text;
}

void Exchange::notify(std::string text) {
  outlet_->send({std::move(text), Outgoing::Kind::notification});
}

}  // namespace casemate::mcp
