#include "checkpoint/region/differentiated.h"

#include <ATen/SequenceNumber.h>

namespace overdrive::checkpoint {

namespace {
constinit thread_local Differentiated* innermost = nullptr;
}

Differentiated::Differentiated() : outer_(innermost) {
  if (outer_ == nullptr) {
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
  }
  innermost = this;
}

Differentiated::~Differentiated() {
  innermost = outer_;
  if (outer_ == nullptr) at::removeCallback(handle_);
}

std::unique_ptr<at::ObserverContext> Differentiated::begin(const at::RecordFunction& op) {
  for (Differentiated* at = innermost; at != nullptr; at = at->outer_) {
    if (at->depth_++ != 0) continue;
    at->current_ = op.name();
    at->nodes_before_ = at::sequence_number::peek();
  }
  return nullptr;
}

// Another thread may have copied this thread's callbacks, and listens to nothing.
void Differentiated::end(const at::RecordFunction&, at::ObserverContext*) {
  for (Differentiated* at = innermost; at != nullptr; at = at->outer_) {
    if (at->depth_ == 0 || --at->depth_ != 0) continue;
    if (at::sequence_number::peek() != at->nodes_before_) at->names_.push_back(at->current_);
  }
}

}  // namespace overdrive::checkpoint
