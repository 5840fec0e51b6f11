// Every allocation of a backward, of a forward under hooks, of a recomputation, of jvp and of a replay fails
// once.
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "forward_ad/forward_ad.h"
#include "hooks/hooks.h"
#include "replay/replay.h"
#include "test/stress/memory/sweep.h"
#include "test/support/fake/device_contract.h"
#include "test/support/graph.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

class OutOfMemory : public testing::TestWithParam<Memory> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    install();
    torch::manual_seed(3);
    nodes_before_ = FunctionNode::live();
  }
  void TearDown() override { EXPECT_EQ(FunctionNode::live(), nodes_before_) << "nodes are still alive"; }
  void sweep(const std::string& name, const Work& work) { test::sweep(name, GetParam(), work); }

  // Large enough for every packer.
  const at::Tensor data_ = at::linspace(-1, 1, 32 * 32).view({32, 32});
  at::Tensor leaf() const { return data_.clone().requires_grad_(); }

 private:
  int nodes_before_ = 0;
};

std::string name_of(const testing::TestParamInfo<Memory>& info) {
  return info.param == Memory::kOfObjects ? "Objects" : "Tensors";
}
INSTANTIATE_TEST_SUITE_P(Of, OutOfMemory, testing::Values(Memory::kOfObjects, Memory::kOfTensors), name_of);

at::Tensor forward(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = x;
  for (int i = 0; i < 3; ++i) y = (at::mm(y, w) / 32).tanh() + y;
  return y;
}

TEST_P(OutOfMemory, InABackward) {
  sweep("backward", [this] {
    const at::Tensor x = leaf(), w = leaf();
    const at::Tensor loss = (forward(x, w) * 2).sigmoid().sum();
    return [=] {
      loss.backward();
      return Tensors{x.grad(), w.grad()};
    };
  });
}

TEST_P(OutOfMemory, InABackwardWithHooks) {
  sweep("backward with hooks", [this] {
    const at::Tensor x = leaf(), w = leaf();
    at::Tensor y = forward(x, w);
    add_tensor_hook(y, [](const at::Tensor& gradient) { return gradient * 3; });
    y.retain_grad();
    const at::Tensor loss = y.sum();
    return [=] {
      loss.backward();
      return Tensors{x.grad(), w.grad(), y.grad()};
    };
  });
}

TEST_P(OutOfMemory, InAPrunedBackwardWithAGraph) {
  sweep("grad() of grad()", [this] {
    const at::Tensor x = leaf(), w = leaf();
    const at::Tensor loss = forward(x, w).sum();
    return [=] {
      const Tensors first =
          torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      return torch::autograd::grad({first[0].sum()}, {w, x});
    };
  });
}

// A backward whose node runs a backward, and so on.
void nest(const at::Tensor& x, int levels) {
  at::Tensor loss;
  {
    const torch::AutoGradMode on(true);
    loss = (x * x).sum();
  }
  if (levels > 0) {
    const NodePtr around = make_node("around", {accumulator(x)}, [x, levels](variable_list&&) {
      nest(x, levels - 1);
      return variable_list{at::ones_like(x)};
    });
    run({.roots = {edge(around)}});
  }
  loss.backward();
}

TEST_P(OutOfMemory, InABackwardInsideOthers) {
  sweep("nested backward", [this] {
    const at::Tensor x = leaf();
    return [x] {
      nest(x, 3);
      return Tensors{x.grad()};
    };
  });
}

// On two workers and the caller.
TEST_P(OutOfMemory, OnWorkers) {
  sweep("backward over devices", [] {
    const at::Tensor x = device_leaf(1);
    at::Tensor y = x * 2;
    for (const int device : {1, 2, 1, 3}) y = y.to(fake::device(device)) * 3;
    const at::Tensor loss = y.sum();
    return [=] {
      loss.backward();
      return Tensors{x.grad().cpu()};
    };
  });
}

struct Observed : at::ObserverContext {};

// Its observers are called before the frame that a worker enters the backward with.
TEST_P(OutOfMemory, OnWorkersUnderAProfiler) {
  const at::CallbackHandle handle = at::addGlobalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        return std::make_unique<Observed>();
      },
      [](const at::RecordFunction&, at::ObserverContext*) {}));
  sweep("observed backward over devices", [] {
    const at::Tensor x = device_leaf(1);
    const at::Tensor loss = ((x * 2).to(fake::device(2)) * 3).sum();
    return [=] {
      loss.backward();
      return Tensors{x.grad().cpu()};
    };
  });
  at::removeCallback(handle);
}

// --- saved tensors ---

struct Packing {
  const char* name;
  std::function<HooksPtr()> make;
};

const Packing kPackings[] = {
    {"a function",
     [] {
       return hooks::make_hooks(
           [](const at::Tensor& tensor, const hooks::SaveInfo&) { return hooks::Packed::of(tensor.clone()); },
           [](hooks::Packed& packed, const hooks::UnpackInfo&) { return packed.tensors[0]; },
           {.lossless = true});
     }},
    {"quantise", [] { return hooks::quantise({.min_bytes = 0}); }},
    {"spill_to_disk", [] { return hooks::spill_to_disk({.min_bytes = 0, .max_waiting_bytes = 0}); }},
    {"scheduled spill_to_disk",
     [] {
       return hooks::schedulable(hooks::spill_to_disk({.min_bytes = 0, .max_waiting_bytes = 5'000}),
                                 {.window_tensors = 2});
     }},
    {"quantise and spill_to_disk",
     [] {
       return hooks::in_turn({hooks::quantise({.min_bytes = 0}), hooks::spill_to_disk({.min_bytes = 0})});
     }},
};

TEST_P(OutOfMemory, UnderHooksOnSavedTensors) {
  for (const Packing& packing : kPackings) {
    sweep(packing.name, [&] {
      const at::Tensor x = leaf(), w = leaf();
      const HooksPtr hooks = packing.make();
      return [=] {
        at::Tensor loss;
        {
          const SavedTensorHooksGuard scope(hooks);
          loss = forward(x, w).sum();
        }
        loss.backward();
        return Tensors{x.grad(), w.grad()};
      };
    });
    if (HasFatalFailure()) return;
  }
}

// --- recomputations ---

TEST_P(OutOfMemory, InARecomputation) {
  const auto with = [this](const char* name, const CheckpointOptions& options) {
    sweep(name, [&] {
      const at::Tensor x = leaf(), w = leaf(), seen = at::zeros({32, 32});
      torch::manual_seed(5);
      return [=] {
        // Draws random numbers and writes to a tensor from outside.
        const auto region = [w, seen](const at::Tensor& input) {
          seen.add_(input.detach());
          return at::dropout(forward(input, w), 0.5, true);
        };
        const at::Tensor y = checkpointed(options, region, checkpointed(options, region, x * 1));
        y.sum().backward();
        return Tensors{x.grad(), w.grad(), seen};
      };
    });
  };
  with("checkpoint on demand", {.form = CheckpointForm::kOnDemand});
  if (HasFatalFailure()) return;
  with("checkpoint early", {.form = CheckpointForm::kEarly});
}

TEST_P(OutOfMemory, InARecomputationAhead) {
  sweep("checkpoint ahead", [&] {
    const at::Tensor x = leaf(), w = leaf();
    return [=] {
      at::Tensor y = x * 1;
      const auto region = [w](const at::Tensor& input) { return forward(input, w); };
      for (int i = 0; i < 3; ++i) y = checkpointed({.form = CheckpointForm::kEarly, .ahead = 1}, region, y);
      y.sum().backward();
      return Tensors{x.grad(), w.grad()};
    };
  });
}

// --- forward mode ---

TEST_P(OutOfMemory, InJvp) {
  const auto f = [](const at::Tensor& x) { return (x * x).sin().sum(); };
  sweep("jvp", [&] {
    return [=, this] {
      const auto [value, tangent] = forward_ad::jvp(f, data_, at::ones_like(data_));
      return Tensors{value, tangent};
    };
  });
  if (HasFatalFailure()) return;
  sweep("jvp of jvp", [&] {
    return [=, this] {
      const auto slope = [&](const at::Tensor& x) {
        const auto [value, tangent] = forward_ad::jvp(f, x, at::ones_like(data_));
        return tangent;
      };
      const auto [value, tangent] = forward_ad::jvp(slope, data_, at::ones_like(data_));
      return Tensors{value, tangent};
    };
  });
}

// --- a captured step ---

// A replay that fails in the middle says so until reset().
TEST_P(OutOfMemory, InAReplay) {
  sweep("replay", [&] {
    const at::Tensor w = leaf();
    auto step = std::make_shared<CapturedStep>(
        [w](const Tensors& inputs) {
          w.mutable_grad().reset();
          const at::Tensor loss = forward(inputs[0], w).sum();
          loss.backward();
          return Tensors{loss.detach(), w.grad().clone()};
        },
        CaptureOptions{.always = true});
    for (int i = 0; i < 6; ++i) step->call({data_});
    return [=, this]() -> Tensors {
      try {
        return step->call({data_});
      } catch (...) {
        step->reset();
        EXPECT_EQ(step->call({data_}).size(), 2u);
        throw;
      }
    };
  });
}

}  // namespace
}  // namespace overdrive::test
