// Step files that were changed with care: each fits its checksum and its tables, and is refused by one rule.
#include "replay/file/stored_step.h"
#include "test/replay/step_file_fixture.h"

namespace overdrive::test {
namespace {

using namespace torch::nn;
using namespace overdrive::replay;

class StepRules : public testing::Test {
 protected:
  // A net with everything that has a rule.
  static Training everything() {
    Sequential net(Conv2d(Conv2dOptions(1, 4, 3).padding(1)), BatchNorm2d(4), MaxPool2d(2), Flatten(),
                   Linear(64, 8), LayerNorm(LayerNormOptions({8})), Linear(8, 3));
    Training training{.model = net.ptr(), .optimizer = adam()(net->parameters())};
    training.step = [net, raw = training.optimizer.get()](const Tensors& given) mutable {
      raw->zero_grad();
      at::Tensor loss = torch::cross_entropy_loss(net->forward(given[0]), given[1]) + at::zeros({1}).sum();
      loss.backward();
      raw->step();
      return loss;
    };
    training.inputs = [](int i) {
      Tensors batch = batch_of(i, {4, 1, 8, 8}, {4});
      batch[1] = (torch::arange(4) + i) % 3;
      return batch;
    };
    return training;
  }

  StepRules() : StepRules([] { return everything(); }) {}
  explicit StepRules(const SideBySide::Make& make) : training_(make) {
    training_.step->save(training_.path);
    good_ = std::make_shared<std::string>(read_file(training_.path));
  }

  // The error after a change of the tables.
  std::string error_after(const std::function<void(StoredStep&, StoredProgram&)>& change) {
    StoredStep step = from_bytes(std::make_shared<std::string>(*good_));
    change(step, step.functions[0].programs[0]);
    write_file(training_.path, to_bytes(step));
    const std::string error = error_of([&] { load_step(training_.path); });
    return error.substr(0, error.find('\n'));
  }

  static size_t find(const StoredStep& step, const StoredProgram& program, const std::string& name) {
    for (size_t i = 0; i < program.operators.size(); ++i) {
      if (name_of_schema(step.schemas[program.operators[i].schema]) == name) return i;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  // A copy of a value, with a change, in the place of an operator's argument.
  static void replace(StoredProgram& program, StoredOperator& op, size_t argument,
                      const std::function<void(Value&)>& change) {
    Value value = program.values[op.in[argument].values[0]];
    change(value);
    op.in[argument].values[0] = static_cast<int>(program.values.size());
    program.values.push_back(std::move(value));
  }

  void refuses(const std::string& name, size_t argument, const std::function<void(Value&)>& change) {
    EXPECT_THAT(error_after([&](StoredStep& step, StoredProgram& program) {
                  replace(program, program.operators[find(step, program, name)], argument, change);
                }),
                testing::HasSubstr("(" + name + "): its arguments do not fit each other."))
        << name;
  }

  FromFile training_;
  std::shared_ptr<std::string> good_;
};

void halve(Value& value) { value.sizes[0] /= 2; }

TEST_F(StepRules, SizesOfGradientsAreThoseOfTheForward) {
  refuses("aten::convolution_backward", 0, halve);
  refuses("aten::native_batch_norm_backward", 0, halve);
  refuses("aten::native_layer_norm_backward", 0, halve);
  refuses("aten::_log_softmax_backward_data", 0, halve);
  refuses("aten::max_pool2d_with_indices_backward", 0, halve);
}

TEST_F(StepRules, TensorsOfChannelsHaveOneElementForEach) {
  refuses("aten::native_batch_norm", 3, halve);
  refuses("aten::native_batch_norm_backward", 5, halve);
  refuses("aten::native_layer_norm_backward", 3, halve);
  refuses("aten::convolution", 2, halve);
}

// A class that the forward has not seen, and places that no pool has found.
TEST_F(StepRules, IndicesOfABackwardAreThoseOfTheForward) {
  refuses("aten::nll_loss_backward", 2, [](Value& target) { target.strides[0] = 0; });
  refuses("aten::max_pool2d_with_indices_backward", 7, [](Value& places) { places.strides[3] = 0; });
  EXPECT_THAT(error_after([](StoredStep& step, StoredProgram& program) {
                StoredOperator& op =
                    program.operators[find(step, program, "aten::max_pool2d_with_indices_backward")];
                op.in[3].constant = c10::List<int64_t>({1, 1});
              }),
              testing::HasSubstr("its arguments do not fit each other."));
}

// A pool's places that are the pool's own input, under another type.
TEST_F(StepRules, AResultIsNewOrWhatTheOperatorWasGiven) {
  EXPECT_THAT(
      error_after([](StoredStep& step, StoredProgram& program) {
        StoredOperator& pool = program.operators[find(step, program, "aten::max_pool2d_with_indices")];
        Value places = program.values[pool.out[1].values[0]];
        places.memory = program.values[pool.in[0].values[0]].memory;
        const auto index = static_cast<int>(program.values.size());
        program.values.push_back(places);
        pool.out[1].values[0] = index;
        program.operators[find(step, program, "aten::max_pool2d_with_indices_backward")].in[7].values[0] =
            index;
        program.call.reset();
      }),
      testing::HasSubstr("it has a result that it neither makes nor was given."));
}

// The classes of a loss are looked at before the program fills them by hand with others.
TEST_F(StepRules, MemoryIsFilledBeforeItIsUsed) {
  EXPECT_THAT(error_after([](StoredStep& step, StoredProgram& program) {
                const size_t backward = find(step, program, "aten::nll_loss_backward");
                const int target = program.operators[backward].in[2].values[0];
                const Value& value = program.values[target];
                const StoredMemory memory{.constant = std::string(4 * sizeof(int64_t), '\x7f'),
                                          .host_filled = static_cast<int32_t>(backward + 1)};
                Value filled = value;
                filled.memory = static_cast<int>(program.memories.size());
                const auto index = static_cast<int>(program.values.size());
                program.values.push_back(filled);
                program.memories.push_back(memory);
                StoredOperator& forward = program.operators[find(step, program, "aten::nll_loss_forward")];
                forward.in[1].values[0] = program.operators[backward].in[2].values[0] = index;
                StoredOperator maker{.schema = static_cast<uint32_t>(step.schemas.size()), .grad_mode = true};
                step.schemas.emplace_back(
                    "aten::zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
                    "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor");
                maker.in.resize(6);
                maker.in[0] = {.kind = Argument::Kind::kTensor, .values = {target}};
                maker.out = {{.kind = Argument::Kind::kTensor, .values = {index}}};
                program.operators.insert(program.operators.begin(), maker);
                for (StoredMemory& each : program.memories) {
                  if (&each != &program.memories.back() && each.host_filled >= 0) ++each.host_filled;
                }
                for (StoredUpdate& update : program.updates) {
                  for (StoredUse& use : update.uses) ++use.op;
                }
                program.call.reset();
              }),
              testing::HasSubstr("memory is filled that operators have used before."));
}

TEST_F(StepRules, WhatAStepLeavesHasANameOfItsOwn) {
  EXPECT_THAT(error_after([](StoredStep&, StoredProgram& program) {
                std::string name;
                for (StoredMemory& memory : program.memories) {
                  if (memory.left_as.empty()) continue;
                  if (!name.empty()) memory.left_as = name;
                  name = memory.left_as;
                }
              }),
              testing::HasSubstr("the step leaves two tensors that are called"));
}

TEST_F(StepRules, MemoryIsWrittenBeforeItIsRead) {
  EXPECT_THAT(error_after([](StoredStep& step, StoredProgram& program) {
                const size_t at = find(step, program, "aten::convolution");
                program.operators.erase(program.operators.begin() + static_cast<int64_t>(at));
                program.call.reset();
              }),
              testing::HasSubstr("it reads memory that nothing was written to."));
}

TEST_F(StepRules, ValuesLieInTheirMemory) {
  const auto changed = [&](const std::function<void(Value&)>& change) {
    return error_after([&](StoredStep& step, StoredProgram& program) {
      change(program.values[program.operators[find(step, program, "aten::convolution")].in[1].values[0]]);
    });
  };
  EXPECT_THAT(changed([](Value& weight) { weight.offset = 1; }),
              testing::HasSubstr("a tensor ends behind its memory."));
  EXPECT_THAT(changed([](Value& weight) { weight.sizes[0] = -1; }), testing::HasSubstr("below zero"));
  EXPECT_THAT(changed([](Value& weight) { weight.sizes[0] = weight.strides[0] = int64_t{1} << 40; }),
              testing::HasSubstr("larger than any memory"));
  EXPECT_THAT(changed([](Value& weight) { weight.type = at::kDouble; }),
              testing::HasSubstr("a tensor ends behind its memory."));
  EXPECT_THAT(changed([](Value& weight) { weight.memory = 10'000; }),
              testing::HasSubstr("memory that does not exist"));
}

TEST_F(StepRules, WhatAStepLeavesHasANameAndAPlace) {
  const auto left = [&](const char* name, int32_t value) {
    return error_after([&](StoredStep&, StoredProgram& program) {
      for (StoredMemory& memory : program.memories) {
        if (memory.origin != Origin::kMade) continue;
        memory.left_as = name;
        memory.left_value = value;
        return;
      }
      ADD_FAILURE() << "the program makes nothing";
    });
  };
  EXPECT_THAT(left("", 10'000), testing::HasSubstr("the step leaves a tensor that has no name."));
  EXPECT_THAT(left("state", 10'000), testing::HasSubstr("what the step leaves does not exist."));
  EXPECT_THAT(left("state", -1), testing::HasSubstr("what the step leaves does not exist."));
}

TEST_F(StepRules, ArgumentsAreOfTheTypesOfTheSchema) {
  const auto changed = [&](const c10::IValue& value) {
    return error_after([&](StoredStep& step, StoredProgram& program) {
      program.operators[find(step, program, "aten::native_batch_norm")].in[5].constant = value;
    });
  };
  for (const c10::IValue& value : {c10::IValue(1), c10::IValue(), c10::IValue("yes"), c10::IValue(0.5)})
    EXPECT_THAT(changed(value), testing::HasSubstr("an argument has a value of another type"));
}

TEST_F(StepRules, OperatorsAreThoseOfTheTableAndOfThisLibTorch) {
  const auto named = [&](const std::string& schema) {
    return error_after([&](StoredStep& step, StoredProgram&) { step.schemas[0] = schema; });
  };
  EXPECT_THAT(named("aten::from_file(str filename) -> Tensor"),
              testing::HasSubstr("aten::from_file is no operator that a step file may name."));
  EXPECT_THAT(named("aten::resize_(Tensor self) -> Tensor"),
              testing::HasSubstr("no operator that a step file may name"));
  EXPECT_THAT(named("prim::Print() -> ()"), testing::HasSubstr("no operator that a step file may name"));
  EXPECT_THAT(named("aten::add.Thing(Tensor self) -> Tensor"),
              testing::HasSubstr("has no operator aten::add.Thing"));
  EXPECT_THAT(named("aten::mm(Tensor self) -> Tensor"), testing::HasSubstr("has another operator aten::mm"));
}

TEST_F(StepRules, ACallWithOtherBitsNamesTheFirstOperator) {
  const auto change = [](StoredStep& step, StoredProgram& program) {
    program.call->outcome ^= 1;
    program.call->operators[find(step, program, "aten::native_layer_norm")] ^= 1;
  };
  EXPECT_THAT(error_after(change),
              testing::AllOf(testing::HasSubstr("function step does not give the bits"),
                             testing::HasSubstr("(aten::native_layer_norm) of the call has other bits"),
                             testing::HasSubstr("the largest difference of a result is 0")));
  struct Counter final : c10::WarningHandler {
    std::string text;
    void process(const c10::Warning& warning) override { text += warning.msg(); }
  } heard;
  const c10::WarningUtils::WarningHandlerGuard listening(&heard);
  Step step = load_step(training_.path, {.accept_other_bits = true});
  EXPECT_THAT(heard.text, testing::HasSubstr("native_layer_norm"));
  EXPECT_EQ(training_.go_on(step, 3), "");
}

class RecurrentRules : public StepRules {
 protected:
  static Training recurrent() {
    LSTM net(LSTMOptions(6, 8).num_layers(2));
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable { return std::get<0>(net->forward(given[0])).square().mean(); },
        [](int i) {
          return batch_of(i, {5, 4, 6}, {1});
        });
  }
  RecurrentRules() : StepRules([] { return recurrent(); }) {}
};

// oneDNN looks at pointers alone.
TEST_F(RecurrentRules, TensorsOfALayerFitEachOther) {
  for (const size_t argument : {0, 1, 2, 3, 4, 5, 6}) refuses("aten::mkldnn_rnn_layer", argument, halve);
  for (const size_t argument : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 22})
    refuses("aten::mkldnn_rnn_layer_backward", argument, halve);
  refuses("aten::mkldnn_rnn_layer", 0, [](Value& input) { std::swap(input.strides[0], input.strides[1]); });
  refuses("aten::mkldnn_rnn_layer", 1, [](Value& weight) { weight.strides[1] = 0; });
  refuses("aten::mkldnn_rnn_layer", 5, [](Value& state) { state.type = at::kInt; });
}

TEST_F(RecurrentRules, NumbersOfALayerAreThoseOfItsTensors) {
  const auto refused = [&](const std::string& name, size_t argument, const c10::IValue& value) {
    EXPECT_THAT(error_after([&](StoredStep& step, StoredProgram& program) {
                  program.operators[find(step, program, name)].in[argument].constant = value;
                }),
                testing::HasSubstr("(" + name + "): its arguments do not fit each other."))
        << name << " " << argument;
  };
  for (const int64_t mode : {0, 1, 3, 4, -1}) refused("aten::mkldnn_rnn_layer", 9, mode);
  for (const int64_t hidden : {int64_t{0}, int64_t{4}, int64_t{16}, INT64_MAX})
    refused("aten::mkldnn_rnn_layer", 10, hidden);
  refused("aten::mkldnn_rnn_layer", 8, c10::List<int64_t>({4, 4}));
  refused("aten::mkldnn_rnn_layer_backward", 14, int64_t{3});
  refused("aten::mkldnn_rnn_layer_backward", 15, int64_t{4});
}

// It is as large as oneDNN says, and holds what the forward left.
TEST_F(RecurrentRules, TheWorkspaceIsThatOfTheForward) {
  EXPECT_THAT(error_after([](StoredStep& step, StoredProgram& program) {
                program.operators[find(step, program, "aten::mkldnn_rnn_layer")].grad_mode = false;
              }),
              testing::HasSubstr("(aten::mkldnn_rnn_layer_backward): its arguments do not fit each other."));
  EXPECT_THAT(error_after([](StoredStep& step, StoredProgram& program) {
                const size_t backward = find(step, program, "aten::mkldnn_rnn_layer_backward");
                const int workspace = program.operators[backward].in[22].values[0];
                for (StoredOperator& op : program.operators) {
                  if (name_of_schema(step.schemas[op.schema]) != "aten::mkldnn_rnn_layer") continue;
                  if (op.out[3].values[0] == workspace) op.out[3].values[0] = op.out[0].values[0];
                }
              }),
              testing::HasSubstr("it reads memory that nothing was written to."));
  Step step = training_.save_and_load();
  EXPECT_EQ(training_.go_on(step, 3), "");
}

TEST_F(StepRules, ADamagedFileIsToldByItsChecksum) {
  const auto error_of_bytes = [&](const std::string& bytes) {
    write_file(training_.path, bytes);
    return error_of([&] { load_step(training_.path); });
  };
  std::string bytes = *good_;
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_THAT(error_of_bytes(bytes), testing::HasSubstr("its checksum differs"));
  EXPECT_THAT(error_of_bytes(good_->substr(0, 1000)), testing::HasSubstr("the file was cut off"));
  bytes = *good_;
  bytes[8] = 9;
  EXPECT_THAT(error_of_bytes(bytes),
              testing::HasSubstr(
                  "the file has version 9, of a newer Overdrive, and this Overdrive reads versions 1 to 2"));
}

}  // namespace
}  // namespace overdrive::test
