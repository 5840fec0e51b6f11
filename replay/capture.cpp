#include "replay/capture.h"

#include "replay/captured_function.h"

namespace overdrive {

CapturedStep::CapturedStep(replay::Function function, CaptureOptions options)
    : captured_(std::make_unique<replay::CapturedFunction>(std::move(function), std::move(options))) {}
CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&&) noexcept = default;

std::vector<at::Tensor> CapturedStep::call(const std::vector<at::Tensor>& inputs) {
  return captured_->call(inputs);
}
void CapturedStep::watch_bytes(const void* value, size_t bytes) { captured_->watch(value, bytes); }
void CapturedStep::reset() { captured_->reset(); }
CaptureStats CapturedStep::stats() const { return captured_->stats(); }
std::string CapturedStep::refusal() const { return captured_->refusal(); }
std::string CapturedStep::explain() const { return captured_->explain(); }

}  // namespace overdrive
