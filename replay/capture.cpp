#include "replay/capture.h"

#include "replay/captured_function.h"
#include "replay/file/names.h"
#include "replay/file/write_step.h"

namespace overdrive {

namespace {

replay::CapturedFunction& present(const std::unique_ptr<replay::CapturedFunction>& captured) {
  TORCH_CHECK(captured, "The captured step was moved to another one; call that one.");
  return *captured;
}

}  // namespace

CapturedStep::CapturedStep(replay::Function function, CaptureOptions options)
    : CapturedStep(std::move(function), std::move(options), false) {}
CapturedStep::CapturedStep(replay::Function function, CaptureOptions options, bool is_part)
    : captured_(std::make_unique<replay::CapturedFunction>(
          std::move(function), std::move(options),
          is_part ? replay::CapturedFunction::Kind::kPart : replay::CapturedFunction::Kind::kStep)) {}
CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&&) noexcept = default;

std::vector<at::Tensor> CapturedStep::call(const std::vector<at::Tensor>& inputs) {
  return present(captured_).call(inputs);
}
bool CapturedStep::would_replay(const std::vector<at::Tensor>& inputs) {
  return present(captured_).would_replay(inputs);
}
void CapturedStep::watch_bytes(const void* value, size_t bytes) { present(captured_).watch(value, bytes); }
void CapturedStep::save(const std::string& path, const SaveOptions& options) const {
  save_steps(path, {{"step", this}}, options);
}
void CapturedStep::reset() { present(captured_).reset(); }
CaptureStats CapturedStep::stats() const { return present(captured_).stats(); }
std::string CapturedStep::refusal() const { return present(captured_).refusal(); }
std::string CapturedStep::explain() const { return present(captured_).explain(); }
std::string CapturedStep::lanes_json() const { return present(captured_).lanes_json(); }
std::string CapturedStep::lanes_page(const std::string& title) const {
  return present(captured_).lanes_page(title);
}

void save_steps(const std::string& path,
                const std::vector<std::pair<std::string, const CapturedStep*>>& functions,
                const SaveOptions& options) {
  SaveOptions all = options;
  std::vector<replay::FunctionToSave> to_save;
  for (const auto& [name, step] : functions) {
    TORCH_CHECK(step, "save_steps() was given a null step.");
    replay::CapturedFunction& captured = present(step->captured_);
    replay::add_names(all.names, captured.names(), name);
    to_save.push_back(captured.to_save(name));
  }
  replay::write_step(path, to_save, all);
}

}  // namespace overdrive
