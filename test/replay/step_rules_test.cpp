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

  StepRules() : training_([] { return everything(); }) {
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
              testing::HasSubstr("the file has version 9, and this Overdrive reads versions 1 to 1"));
}

}  // namespace
}  // namespace overdrive::test
