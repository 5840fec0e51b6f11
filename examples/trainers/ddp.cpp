// Data parallel: the digits CNN on several ranks, each with a copy of the model and a share of every batch.
// LibTorch's own distributed engine (c10d's Reducer, over Gloo) averages the gradients while the backward is
// still running.
//
// What to look for: nothing here mentions Overdrive. The Reducer hangs a hook on every AccumulateGrad
// and asks the engine to call it back at the end; both work as on the stock engine, so gradients are equal to
// stock's bit for bit, on every rank. Alone, a rank is a thread; `overdrive train ddp --world 2` makes it a
// process.
#include "examples/trainers/digits_classifier.h"
#include "examples/trainers/process_group.h"
#include "examples/trainers/thread_team.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <numeric>

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int kThreadRanks = 2;
constexpr int64_t kBatchOfARank = 16;
// Small, so that even this model has several buckets, and the first is on its way before the last is full.
constexpr int64_t kBucketBytes = 32 * 1024;

// One rank: its copy of the model, and who averages its gradients with those of the others.
class Rank {
 public:
  Rank(int rank, nn::Sequential model) : rank_(rank), model_(std::move(model)) {}

  // Waits for all other ranks of the store. Before the first step, and after the model is where it will stay.
  void meet(const c10::intrusive_ptr<c10d::Store>& store, int world) {
    group_ = make_process_group(store, rank_, world);
    const auto parameters = model_->parameters();
    const auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {kBucketBytes});
    std::unordered_map<size_t, std::string> names;
    for (const auto& name : model_->named_parameters().keys()) names.emplace(names.size(), name);
    reducer_ = std::make_unique<c10d::Reducer>(
        parameters, std::vector(buckets.rbegin(), buckets.rend()), group_,
        std::vector<bool>(parameters.size(), false), kBucketBytes, /*find_unused_parameters=*/false,
        /*gradient_as_bucket_view=*/false, std::move(names), kBucketBytes,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  }
  bool has_met() const { return reducer_ != nullptr; }
  using Forward = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;
  // The model, as a function of its images; and how it is called.
  Forward forward() {
    return [this](const std::vector<torch::Tensor>& images) {
      return std::vector<torch::Tensor>{model_->forward(images[0])};
    };
  }
  void call_by(Forward forward) { forward_ = std::move(forward); }

  // Leaves the gradient of all ranks' mean loss in every parameter. Gives the loss of its own share.
  double backward(const torch::Tensor& images, const torch::Tensor& labels, Meter& meter) {
    reducer_->rebuild_buckets();
    reducer_->prepare_for_forward();
    const auto loss = meter.forward([&] { return F::cross_entropy(forward_({images})[0], labels); });
    reducer_->prepare_for_backward({loss});
    meter.backward(loss);
    return loss.item<double>();
  }

  // The largest value that any rank has.
  double most(double mine) {
    std::vector<torch::Tensor> value{torch::tensor(mine)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(value, options)->wait();
    return value[0].item<double>();
  }

 private:
  const int rank_;
  nn::Sequential model_;
  Forward forward_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

class Ddp final : public Trainer {
 public:
  explicit Ddp(const Setup& setup)
      : Trainer(setup), data_(data::load_digits()), world_(setup.world ? setup.world->size : kThreadRanks) {
    TORCH_CHECK(setup.device.is_cpu(), "ddp averages gradients through Gloo, on the CPU only, not on ",
                setup.device, ".");
    const int first = setup.world ? setup.world->rank : 0;
    const int here = setup.world ? 1 : world_;
    store_ = setup.world ? join_store(setup.world->port) : make_store_of_this_process();
    for (int i = first; i < first + here; ++i) {
      torch::manual_seed(setup.seed);  // the same weights on every rank
      models_.push_back(register_module("model" + std::to_string(i - first), make_digits_cnn()));
      ranks_.push_back(std::make_unique<Rank>(i, models_.back()));
      const size_t number = add_part(ranks_.back()->forward());
      ranks_.back()->call_by([this, number](const auto& images) { return call(number, images); });
      optimizers_.push_back(
          &add_optimizer(std::make_unique<torch::optim::Adam>(models_.back()->parameters(), 2e-3)));
    }
    if (!setup.world) team_.emplace(here);
  }

  double step(Meter& meter) override {
    // Every rank draws the whole batch and takes its share of it.
    const auto pick =
        torch::randint(data_.train.labels.size(0), {world_ * kBatchOfARank}, generator(), torch::kInt64);
    std::vector<double> losses(ranks_.size());
    on_every_rank([&](size_t i) {
      Rank& rank = *ranks_[i];
      if (!rank.has_met()) rank.meet(store_, world_);
      const auto share = pick.narrow(0, number_of(i) * kBatchOfARank, kBatchOfARank);
      optimizers_[i]->zero_grad();
      losses[i] = rank.backward(place(data_.train.images.index_select(0, share)),
                                place(data_.train.labels.index_select(0, share)), meter);
      optimizers_[i]->step();
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  }

  double evaluate() override {
    torch::NoGradGuard no_grad;
    return data::accuracy(models_[0]->forward(place(data_.test.images)), data_.test.labels);
  }

  // Ranks that are processes stop after the same step, and none before the others have read all it sent.
  bool all_stop(bool mine) override {
    if (team_) return mine;
    return with_the_others([&] {
      const bool all = ranks_[0]->most(mine ? 1 : 0) > 0;
      if (all) leave_together(store_, setup().world->rank, world_);
      return all;
    });
  }

 private:
  int number_of(size_t i) const { return setup().world ? setup().world->rank : static_cast<int>(i); }

  template <typename Work>
  void on_every_rank(const Work& work) {
    if (team_) return team_->run([&](int i) { work(static_cast<size_t>(i)); });
    with_the_others([&] { work(0); });
  }

  // What c10d says when a peer is gone names sockets; this names the rank too.
  template <typename Work>
  std::invoke_result_t<Work> with_the_others(const Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      const auto* ours = dynamic_cast<const c10::Error*>(&error);
      TORCH_CHECK(false, "rank ", setup().world->rank, " of ", world_,
                  " cannot go on without the others: ", ours ? ours->msg() : error.what());
    }
  }

  const data::Digits data_;
  const int world_;
  c10::intrusive_ptr<c10d::Store> store_;
  // One of each for every rank that lives in this process.
  std::vector<nn::Sequential> models_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::optional<ThreadTeam> team_;  // last, so that its threads end first
};

}  // namespace

std::optional<TrainerInfo> ddp() {
  return TrainerInfo{.name = "ddp",
                     .what = "digits CNN on two ranks, gradients averaged by c10d",
                     .shows = "a distributed engine on top",
                     .quality = "test accuracy",
                     .good = 0.97,
                     .default_steps = 400,
                     .make = [](const Setup& setup) { return std::make_unique<Ddp>(setup); },
                     .distributed = true};
}

}  // namespace overdrive::trainers
