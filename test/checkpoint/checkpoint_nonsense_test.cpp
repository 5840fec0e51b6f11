// Every function of checkpoint/ is given what makes no sense.
#include "checkpoint/pipeline/pipeline.h"
#include "test/checkpoint/checkpoint_fixture.h"
#include "test/support/nonsense.h"

#include <torch/nn.h>

namespace overdrive::checkpoint {
namespace {

using CheckpointNonsense = CheckpointTest;
using Row = test::Nonsense;

TEST_F(CheckpointNonsense, IsRefusedByARegion) {
  const auto f = [](const Tensor& t) { return t * 2; };
  const Function list = [](const Tensors& t) { return t; };
  const auto always = [](const SavedByOp&) { return Choice::kSave; };
  const auto odd = [](const SavedByOp&) { return static_cast<Choice>(9); };
  const auto pack = [](const SavedByOp&) { return Choice::kPack; };
  const auto form = static_cast<Form>(9);
  const std::function<Tensor(const Tensor&)> empty;
  const Tensor none;
  Checkpointing once(list, {x}), tied(list, {x});
  Tensors outputs = once.checkpoint(), again = tied.recompute(tied.checkpoint());
  const auto product = [](const Tensor& t) { return t * t; };
  test::expect_refused({
      {"an empty function", [&] { checkpointed(empty, x); }, {"checkpointed: the function is empty"}},
      {"no tensors", [&] { checkpointed([] { return at::ones({1}); }); }, {"no tensor among the inputs"}},
      {"an undefined tensor", [&] { checkpointed(f, none); }, {"no tensor among the inputs"}},
      {"a form", [&] { checkpointed({.form = form}, f, x); }, {"Options::form is 9", "kEarly nor kOnDemand"}},
      {"a negative ahead",
       [&] { checkpointed({.form = Form::kEarly, .ahead = -1}, f, x); },
       {"Options::ahead is -1"}},
      {"a negative ahead on demand", [&] { checkpointed({.ahead = -1}, f, x); }, {"Options::ahead is -1"}},
      {"ahead on demand", [&] { checkpointed({.ahead = 1}, f, x); }, {"cannot run ahead", "kEarly"}},
      {"a packer without a policy",
       [&] { checkpointed({.packer = hooks::keep()}, f, x); },
       {"Options::packer", "policy"}},
      {"a policy, early",
       [&] { checkpointed({.form = Form::kEarly, .policy = always}, f, x); },
       {"the form kOnDemand"}},
      {"keep_recomputed, early",
       [&] { checkpointed({.form = Form::kEarly, .keep_recomputed = true}, f, x); },
       {"keep_recomputed belongs to the form kOnDemand"}},
      {"early_stop, early",
       [&] { checkpointed({.form = Form::kEarly, .early_stop = false}, f, x); },
       {"early_stop = false belongs to the form kOnDemand"}},
      {"a choice",
       [&] { checkpointed({.policy = odd, .name = "net"}, product, x * 1); },
       {"(net)", "returned 9", "kPack"}},
      {"a choice without a packer",
       [&] { checkpointed({.policy = pack}, product, x * 1); },
       {"no Options::packer"}},
      {"the name is said", [&] { checkpointed({.ahead = -1, .name = "net"}, f, x); }, {"checkpointed (net)"}},
      {"halves of an empty function", [&] { Checkpointing(nullptr, {x}); }, {"the function is empty"}},
      {"halves on demand", [&] { Checkpointing(list, {x}, {.form = Form::kOnDemand}); }, {"has no halves"}},
      {"checkpoint() twice", [&] { once.checkpoint(); }, {"called twice", "make another"}},
      {"recompute() twice", [&] { tied.recompute(again); }, {"called twice"}},
      {"recompute() first", [&] { Checkpointing(list, {x}).recompute({x}); }, {"checkpoint() comes before"}},
      {"waiting for none", [&] { wait_in_backward(none); }, {"wait_in_backward", "is undefined"}},
      {"waiting of integers",
       [&] { wait_in_backward(at::ones({2}, at::kLong)); },
       {"a type without gradients"}},
      {"release of none",
       [&] { release_in_backward(none, dependency_token(at::kCPU, true)); },
       {"is undefined"}},
      {"a foreign token", [&] { release_in_backward(x, weight); }, {"is no token", "wait_in_backward()"}},
      {"no token", [&] { release_in_backward(x, none); }, {"is no token"}},
  });
}

TEST_F(CheckpointNonsense, IsRefusedByAChain) {
  const std::vector<Layer> layers(3, [](const Tensor& t) { return t.sin(); });
  const std::vector<Layer> holes{layers[0], nullptr};
  const auto always = [](const SavedByOp&) { return Choice::kSave; };
  torch::nn::Sequential none;
  const auto run = [&](const ChainSchedule& schedule, const Options& options = {}) {
    checkpoint_sequential(layers, x, schedule, options);
  };
  test::expect_refused({
      {"no layers", [&] { checkpoint_sequential({}, x, Segments{1}); }, {"there are no layers"}},
      {"an empty Sequential",
       [&] { checkpoint_sequential(layers_of(*none), x, Revolve{1}); },
       {"there are no layers"}},
      {"an empty layer",
       [&] { checkpoint_sequential(holes, x, Segments{1}); },
       {"layer 1 is an empty function"}},
      {"no segments", [&] { run(Segments{0}); }, {"cannot be cut into 0 parts"}},
      {"negative segments", [&] { run(Segments{-1}); }, {"cannot be cut into -1 parts"}},
      {"too many segments", [&] { run(Segments{4}); }, {"from 1 to 3 is possible"}},
      {"no snapshots", [&] { run(Revolve{0}); }, {"needs a snapshot"}},
      {"Revolve on demand",
       [&] { run(Revolve{2}, {.form = Form::kOnDemand}); },
       {"Revolve is of the early form"}},
      {"Revolve with early_stop", [&] { run(Revolve{2}, {.early_stop = false}); }, {"early_stop"}},
      {"Selective without a policy", [&] { run(Selective{}); }, {"Selective needs a policy"}},
      {"Selective, early", [&] { run(Selective{always}, {.form = Form::kEarly}); }, {"of the form kOnDemand"}},
      {"Selective with another policy",
       [&] { run(Selective{always}, {.policy = always}); },
       {"belong into Selective"}},
      {"no next snapshot", [&] { next_snapshot(1, 1); }, {"next_snapshot(1, 1)", "2 steps and 2 snapshots"}},
      {"negative steps", [&] { fewest_reruns(-1, 2); }, {"both must be positive"}},
      {"no steps", [&] { even_parts(0, 1); }, {"A chain of 0 steps"}},
  });
}

TEST_F(CheckpointNonsense, IsRefusedByAPipeline) {
  const Layer sine = [](const Tensor& t) { return t.sin(); };
  const Layer broken = [](const Tensor& t) { return at::linear(t, at::ones({2, 3})); };
  const auto stage = [](Layer layer) {
    return Stage{.layers = {std::move(layer)}, .device = at::kCPU, .parameters = {}};
  };
  const auto stages = [&](const Layer& second) { return std::vector<Stage>{stage(sine), stage(second)}; };
  const auto checkpointed_never = PipelineOptions::Checkpointed::kNever;
  const auto odd = static_cast<PipelineOptions::Checkpointed>(9);
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::Tanh()), none;
  const std::vector<at::Device> cpu{at::kCPU};
  const at::Device elsewhere(at::kMAIA, 0);
  test::expect_refused({
      {"no stages", [&] { Pipeline({}); }, {"there is no stage"}},
      {"an empty stage",
       [&] {
         Pipeline({stage(sine), Stage{}});
       },
       {"stage 1 has no layers"}},
      {"an empty layer", [&] { Pipeline({stage(nullptr)}); }, {"a layer of stage 0 is an empty function"}},
      {"no chunks", [&] { Pipeline({stage(sine)}, {.chunks = 0}); }, {"0 chunks"}},
      {"on demand",
       [&] { Pipeline({stage(sine)}, {.region = {.form = Form::kOnDemand}}); },
       {"in the early form"}},
      {"a negative ahead",
       [&] { Pipeline({stage(sine)}, {.region = {.ahead = -1}}); },
       {"Pipeline: Options::ahead is -1"}},
      {"a choice of micro-batches",
       [&] { Pipeline({stage(sine)}, {.checkpointed = odd}); },
       {"checkpointed is 9", "kNever"}},
      {"a device that is not here",
       [&] { stages_of(*model, {2}, {elsewhere}); },
       {"stage 0 is to be on", "knows no such devices"}},
      {"an empty Sequential", [&] { stages_of(*none, {}, {}); }, {"nothing to split"}},
      {"too many layers", [&] { stages_of(*model, {3}, cpu); }, {"the model has 2"}},
      {"a batch of nothing", [&] { Pipeline({stage(sine)}).forward(Tensor()); }, {"no first dimension"}},
      {"an error in a stage",
       [&] { Pipeline(stages(broken)).forward(x); },
       {"while stage 1 of a Pipeline ran, on cpu"}},
      {"an error in a plain stage",
       [&] { Pipeline(stages(broken), {.checkpointed = checkpointed_never}).forward(x); },
       {"while stage 1 of a Pipeline ran"}},
  });
}

TEST_F(CheckpointNonsense, FewestRerunsOfALongChainAreCountedAtOnce) {
  for (int64_t n = 1; n < 200; ++n) EXPECT_EQ(fewest_reruns(n, 1), n * (n - 1) / 2);
  EXPECT_EQ(fewest_reruns(1'000'000'000, 1), int64_t{499'999'999'500'000'000});
  EXPECT_GT(fewest_reruns(1'000'000'000, 2), 0);
}

TEST_F(CheckpointNonsense, TheDefaultFormAllowsGradAndCreateGraph) {
  const auto f = [this](const Tensor& t) { return block(t); };
  const Tensor y = checkpointed(f, x).sum();
  const Tensor first = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  const Tensor plain = torch::autograd::grad({f(x).sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(same_bits(first.detach(), plain.detach()));
  EXPECT_TRUE(same_bits(torch::autograd::grad({first.square().sum()}, {x})[0],
                        torch::autograd::grad({plain.square().sum()}, {x})[0]));
}

}  // namespace
}  // namespace overdrive::checkpoint
