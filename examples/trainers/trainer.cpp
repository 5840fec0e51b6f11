#include "examples/trainers/trainer.h"

#include "bench/graph.h"

namespace overdrive::trainers {

void Meter::reset() {
  nanoseconds_ = 0;
  backwards_ = 0;
  nodes_ = 0;
}

void Meter::note(const torch::Tensor& root) {
  ++backwards_;
  if (counts_nodes_) nodes_ += bench::count_nodes({torch::autograd::impl::gradient_edge(root)});
}

Trainer::Trainer(uint64_t seed) : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  torch::manual_seed(seed);  // parameters are drawn from the default generator
}

Trainer::~Trainer() = default;

torch::optim::Optimizer& Trainer::add_optimizer(std::unique_ptr<torch::optim::Optimizer> optimizer) {
  optimizers_.push_back(std::move(optimizer));
  return *optimizers_.back();
}

void Trainer::save(torch::serialize::OutputArchive& archive) const {
  torch::nn::Module::save(archive);
  archive.write("generator", generator_.get_state(), /*is_buffer=*/true);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::OutputArchive inner(archive.compilation_unit());
    optimizers_[i]->save(inner);
    archive.write("optimizer" + std::to_string(i), inner);
  }
}

void Trainer::load(torch::serialize::InputArchive& archive) {
  torch::nn::Module::load(archive);
  torch::Tensor state;
  archive.read("generator", state, /*is_buffer=*/true);
  generator_.set_state(state);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::InputArchive inner;
    archive.read("optimizer" + std::to_string(i), inner);
    optimizers_[i]->load(inner);
  }
}

}  // namespace overdrive::trainers
