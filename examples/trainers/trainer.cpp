#include "examples/trainers/trainer.h"

#include "bench/graph.h"
#include "replay/capture.h"

namespace overdrive::trainers {

void Meter::reset() {
  forward_nanoseconds_ = 0;
  backward_nanoseconds_ = 0;
  backwards_ = 0;
  nodes_ = 0;
}

void Meter::note(const torch::Tensor& root) {
  ++backwards_;
  if (look_) look_(root);
  if (counts_nodes_) nodes_ += bench::count_nodes({torch::autograd::impl::gradient_edge(root)});
}

struct Trainer::Part {
  Function function;
  torch::optim::Optimizer* optimizer = nullptr;
  bool has_graph = false;
  std::unique_ptr<CapturedStep> step = nullptr;

  Tensors call(const Tensors& inputs) { return step ? step->call(inputs) : function(inputs); }
};

Trainer::Trainer(const Setup& setup)
    : setup_(setup), generator_(at::make_generator<at::CPUGeneratorImpl>(setup.seed)) {
  torch::manual_seed(setup.seed);  // parameters are drawn from the default generator
}

Trainer::~Trainer() = default;

torch::Tensor Trainer::place(const torch::Tensor& tensor) const {
  return tensor.to(setup_.device, tensor.is_floating_point() ? setup_.dtype : tensor.scalar_type());
}

torch::optim::Optimizer& Trainer::add_optimizer(std::unique_ptr<torch::optim::Optimizer> optimizer) {
  optimizers_.push_back(std::move(optimizer));
  return *optimizers_.back();
}

size_t Trainer::add_learning(torch::optim::Optimizer& optimizer, Learning learning) {
  parts_.push_back(std::make_unique<Part>(
      Part{.function = [this, learning = std::move(learning)](
                           const Tensors& batch) { return Tensors{learning(batch, *meter_)}; },
           .optimizer = &optimizer}));
  return parts_.size() - 1;
}

size_t Trainer::add_part(Function function) {
  parts_.push_back(std::make_unique<Part>(Part{.function = std::move(function), .has_graph = true}));
  return parts_.size() - 1;
}

size_t Trainer::add_function(Function function) {
  parts_.push_back(std::make_unique<Part>(Part{.function = std::move(function)}));
  return parts_.size() - 1;
}

torch::Tensor Trainer::learn(size_t number, const std::vector<torch::Tensor>& batch, Meter& meter) {
  meter_ = &meter;
  return parts_[number]->call(batch).at(0);
}

Trainer::Tensors Trainer::call(size_t number, const Tensors& inputs) { return parts_[number]->call(inputs); }

void Trainer::capture() {
  for (auto& part : parts_) {
    // A training never leaves its mode: no trainer calls eval().
    part->step = std::make_unique<CapturedStep>(
        part->function, CaptureOptions{.optimizer = part->optimizer, .constant_modes = true}, part->has_graph);
  }
}

Trainer::Captured Trainer::captured() const {
  Captured sum;
  for (const auto& part : parts_) {
    if (!part->step) continue;
    const CaptureStats stats = part->step->stats();
    sum.calls += stats.calls;
    sum.replayed += stats.replayed;
    if (sum.refusal.empty()) sum.refusal = part->step->refusal();
  }
  return sum;
}

void Trainer::save(torch::serialize::OutputArchive& archive) const {
  torch::nn::Module::save(archive);
  // Not "generator": a model may have a module of that name, and would be overwritten.
  archive.write("random_state", generator_.get_state(), /*is_buffer=*/true);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::OutputArchive inner(archive.compilation_unit());
    optimizers_[i]->save(inner);
    archive.write("optimizer" + std::to_string(i), inner);
  }
}

void Trainer::load(torch::serialize::InputArchive& archive) {
  torch::nn::Module::load(archive);
  torch::Tensor state;
  archive.read("random_state", state, /*is_buffer=*/true);
  generator_.set_state(state);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::InputArchive inner;
    archive.read("optimizer" + std::to_string(i), inner);
    optimizers_[i]->load(inner);
  }
}

std::unique_ptr<Trainer> make_trainer(const TrainerInfo& info, const Setup& setup) {
  auto trainer = info.make(setup);
  // Changes the parameters' data and not the parameters: the optimizers go on holding them.
  trainer->to(setup.device, setup.dtype);
  return trainer;
}

const std::vector<TrainerInfo>& trainers() {
  static const auto* all = [] {
    auto* list = new std::vector<TrainerInfo>{digits_mlp(), digits_cnn(), lstm(), rl_many_small(), deq(),
                                              wgan_gp(),    newton_cg(),  pinn(), transformer(),   pipeline()};
    if (const auto distributed = ddp()) list->push_back(*distributed);
    return list;
  }();
  return *all;
}

std::vector<const TrainerInfo*> find_trainers(const std::string& name) {
  std::vector<const TrainerInfo*> found;
  for (const TrainerInfo& info : trainers()) {
    if (info.name == name || info.group == name) found.push_back(&info);
  }
  return found;
}

}  // namespace overdrive::trainers
