#include "replay/record/apart_call.h"

#include "engine/base/no_destructor.h"
#include "replay/record/active_recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace overdrive::replay {

namespace {

thread_local ApartTape* tape_of_thread = nullptr;
thread_local bool is_outdated = false;

std::vector<at::Tensor> copies_of_all(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& each : tensors)
    copies.push_back(each.defined() ? each.detach().clone() : at::Tensor());
  return copies;
}

// Of what the function is given; nobody chooses it to be the same.
uint64_t digest_of_all(const std::vector<at::Tensor>& copies) {
  uint64_t digest = copies.size();
  const auto add = [&](uint64_t word) { digest = (digest ^ word) * 0x9e3779b97f4a7c15 + (digest >> 29); };
  for (const at::Tensor& each : copies) {
    if (!each.defined()) continue;
    for (const int64_t size : each.sizes()) add(static_cast<uint64_t>(size));
    add(static_cast<uint64_t>(each.scalar_type()));
    const at::Tensor dense = each.contiguous();
    const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
    for (size_t i = 0; i < dense.nbytes(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, std::min(sizeof word, dense.nbytes() - i));
      add(word);
    }
  }
  return digest;
}

// Nested calls of captured steps have tapes of their own, or none, and no recording.
struct Outside {
  Outside() : tape(std::exchange(tape_of_thread, nullptr)), recorder(exchange_active_recorder(nullptr)) {}
  ~Outside() {
    tape_of_thread = tape;
    exchange_active_recorder(recorder);
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
  ApartTape* const tape;
  Recorder* const recorder;
};

std::vector<at::Tensor> run_at(int64_t place, const std::vector<at::Tensor>& inputs) {
  ApartTape* tape = ApartTape::active();
  TORCH_CHECK(tape, "a function runs apart, and no captured step is under way.");
  return tape->run(place, inputs);
}

}  // namespace

ApartTape* ApartTape::active() { return tape_of_thread; }

void ApartTape::rewind(bool may_call) {
  if (!tape_of_thread || tape_of_thread->is_in_a_part()) return;
  tape_of_thread->next_ = 0;
  tape_of_thread->may_call_ = may_call;
  tape_of_thread->program_ = nullptr;
}

ApartTape::ApartTape()
    : around_(std::exchange(tape_of_thread, this)),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      grad_mode_(at::GradMode::is_enabled()) {}

ApartTape::~ApartTape() { tape_of_thread = around_; }

std::vector<int64_t> ApartTape::states() const {
  std::vector<int64_t> result;
  if (!program_) return result;
  const auto add = [&](const WeakTensor& tensor) {
    const auto alive = tensor.lock();
    if (!alive) return;
    result.push_back(alive->is_inference() ? 0 : alive->version_counter().current_version());
    result.push_back(alive->requires_grad() ? 1 : 0);
    if (alive->has_storage()) result.push_back(reinterpret_cast<int64_t>(alive->storage().data()));
  };
  for (const OutsideTensor& outside : program_->outside) add(outside.weak);
  std::for_each(program_->inputs.begin(), program_->inputs.end(), add);
  return result;
}

std::vector<at::Tensor> ApartTape::run(int64_t place, const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(program_ && place >= 0 && static_cast<size_t>(place) < program_->aparts.size(),
              "a function that runs apart is not there.");
  if (!is_replay_) return run(*program_->aparts[place], inputs);
  std::vector<at::Tensor> results;
  is_outdated = false;
  try {
    results = run(*program_->aparts[place], inputs);
  } catch (const std::exception&) {
    throw;
  } catch (...) {  // a replay knows no others, and the tape has it
    throw std::runtime_error("a function that runs apart threw");
  }
  if (has_changed_)
    throw ChangedApart(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        "a function that runs apart changed a tensor that the captured step uses; let it return a "
        "tensor, and let the step copy that (copy_).");
  if (is_outdated) throw std::runtime_error("a function that runs apart changed what the step looks at");
  return results;
}

std::vector<at::Tensor> ApartTape::run(const ApartFunction& function, const std::vector<at::Tensor>& inputs) {
  // Whoever runs the operators has hidden modes of the thread.
  const c10::impl::ForceDispatchKeyGuard as_in_the_call(keys_);
  const at::AutoGradMode grad_mode(grad_mode_);
  const std::vector<at::Tensor> copies = copies_of_all(inputs);
  const uint64_t given = digest_of_all(copies);
  const size_t place = next_++;
  if (place >= made_.size() || made_[place].given != given) {
    TORCH_CHECK(may_call_, "a function that runs apart is given other values in a replay than in the call.");
    made_.resize(place);
    made_.push_back({.given = given});
    return called(function, copies, made_.back());
  }
  const Made& made = made_[place];
  if (made.generator.defined()) at::Generator(at::detail::getDefaultCPUGenerator()).set_state(made.generator);
  if (made.error) std::rethrow_exception(made.error);
  return copies_of_all(made.results);
}

std::vector<at::Tensor> ApartTape::called(const ApartFunction& function, const std::vector<at::Tensor>& copies,
                                          Made& made) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  const std::vector<int64_t> states_before = states();
  std::vector<at::Tensor> results;
  try {
    TORCH_CHECK(function.is_there, "An overdrive::Apart is gone that a captured step calls.");
    const Outside scope;
    results = function.call(copies);
  } catch (...) {
    made.error = std::current_exception();
  }
  const at::Tensor after = generator.get_state();
  if (std::memcmp(before.const_data_ptr(), after.const_data_ptr(), before.nbytes()) != 0)
    made.generator = after;
  has_changed_ |= states() != states_before;
  if (made.error) std::rethrow_exception(made.error);
  made.results = copies_of_all(results);
  return copies_of_all(made.results);
}

std::vector<at::Tensor> run_apart_alone(const ApartFunction& function, const std::vector<at::Tensor>& inputs) {
  const Outside scope;
  return copies_of_all(function.call(copies_of_all(inputs)));
}

void note_outdated_by_apart() { is_outdated = true; }

bool take_outdated_by_apart() { return std::exchange(is_outdated, false); }

const c10::OperatorHandle& apart_operator() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    made.def("apart(int place, Tensor[] inputs) -> Tensor[]");
    made.impl("apart", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &run_at));
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView})
      made.impl("apart", torch::dispatch(key, torch::CppFunction::makeFallthrough()));
    return made;
  }());
  static base::NoDestructor<c10::OperatorHandle> handle(
      c10::Dispatcher::singleton().findSchemaOrThrow("overdrive::apart", ""));
  return *handle.get();
}

}  // namespace overdrive::replay
