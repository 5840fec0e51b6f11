// OVERDRIVE_ERRORS=full: file and line of the program's own frames, with anomaly mode and the host's words
// around them, and without. Under other values anomaly mode is stock's (contract_anomaly_test.cpp).
#include "inspect/errors/error_note.h"
#include "test/support/caught.h"
#include "test/support/contract.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <thread>

namespace overdrive::test {

extern const int kLineOfSine;
at::Tensor sine_with_debug_info(const at::Tensor& x);

namespace {
using engine::Errors;
using testing::HasSubstr;
using testing::Not;

struct Warnings : c10::WarningHandler {
  void process(const c10::Warning& warning) override { text += warning.msg() + "\n---\n"; }
  std::string text;
};

class ForwardFrames : public ContractBase {
 protected:
  void use(Errors errors) {
    engine::Options options;
    options.errors = errors;
    install(options);
  }
  void TearDown() override {
    install(engine::Options());
    ContractBase::TearDown();
  }

  static std::string note_of(const std::function<void()>& fails) {
    try {
      fails();
    } catch (const std::exception& error) {
      return error_note(error);
    }
    ADD_FAILURE() << "the backward ran to its end";
    return "";
  }

  // A backward through sin() of sine_with_debug_info that fails, and what is said about it.
  static std::string note_of_failure(std::string* warned) {
    Warnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    const at::Tensor x = at::ones({2}).requires_grad_();
    const at::Tensor a = x.exp(), y = sine_with_debug_info(a);
    a.add_(1);  // sin() saved it
    const std::string note = note_of([&] { y.sum().backward(); });
    if (warned != nullptr) *warned = warnings.text;
    return note;
  }
};

std::string place_of_sine() { return "sine_with_debug_info.cpp:" + std::to_string(kLineOfSine) + "\n"; }

TEST_F(ForwardFrames, HaveFileAndLineAndNoFrameOfTheDispatcher) {
  use(Errors::kFull);
  const torch::autograd::DetectAnomalyGuard anomaly;
  const std::string note = note_of_failure(nullptr);
  EXPECT_THAT(note, HasSubstr("; Traceback of forward call:\n  overdrive::test::sine_with_debug_info("));
  EXPECT_THAT(note, HasSubstr(place_of_sine()));
  EXPECT_THAT(note, HasSubstr("\n  main"));
  EXPECT_THAT(note, Not(HasSubstr("  at::")));
}

TEST_F(ForwardFrames, AreInTheWarningOfAnomalyMode) {
  use(Errors::kFull);
  const torch::autograd::DetectAnomalyGuard anomaly;
  std::string warned;
  note_of_failure(&warned);
  EXPECT_THAT(warned, HasSubstr("Error detected in SinBackward0. Traceback of forward call that caused the "
                                "error:\n  overdrive::test::sine_with_debug_info("));
  EXPECT_THAT(warned, HasSubstr(place_of_sine()));
}

TEST_F(ForwardFrames, OfANodeThatABackwardMadeHaveThoseOfItsParent) {
  use(Errors::kFull);
  const torch::autograd::DetectAnomalyGuard anomaly;
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor y = sine_with_debug_info(x);
  const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  slope.grad_fn()->metadata()->print_stack("x");
  EXPECT_THAT(warnings.text, HasSubstr("Previous calculation was induced by SinBackward0. Traceback of forward "
                                       "call that induced the previous calculation:\n  overdrive::test::sine"));
}

TEST_F(ForwardFrames, AreNotThereWhereNobodyAsks) {
  for (const Errors errors : {Errors::kPlain, Errors::kNote}) {
    use(errors);
    const torch::autograd::DetectAnomalyGuard anomaly;
    std::string warned;
    EXPECT_THAT(note_of_failure(&warned), Not(HasSubstr("Traceback")));
    EXPECT_THAT(warned, HasSubstr("Error detected in SinBackward0"));
    EXPECT_THAT(warned, Not(HasSubstr(place_of_sine())));
  }
}

using ForwardPlaces = ForwardFrames;

TEST_F(ForwardPlaces, AreInTheNoteWithoutAnomalyMode) {
  use(Errors::kFull);
  std::string warned;
  const std::string note = note_of_failure(&warned);
  EXPECT_THAT(note, HasSubstr("; Traceback of forward call:\n  overdrive::test::sine_with_debug_info("));
  EXPECT_THAT(note, HasSubstr(place_of_sine()));
  EXPECT_THAT(note, HasSubstr("\n  main"));
  EXPECT_THAT(note, Not(HasSubstr("  at::")));
  EXPECT_EQ(warned, "");
  use(Errors::kNote);
  EXPECT_THAT(note_of_failure(nullptr), Not(HasSubstr("Traceback")));
}

TEST_F(ForwardPlaces, AreRecordedOnAThreadAfterItsFirstBackward) {
  use(Errors::kFull);
  std::string before, after;
  std::thread([&] {
    before = note_of_failure(nullptr);
    after = note_of_failure(nullptr);
  }).join();
  EXPECT_THAT(before, Not(HasSubstr("Traceback")));
  EXPECT_THAT(after, HasSubstr(place_of_sine()));
}

struct SineThatFails : torch::autograd::Function<SineThatFails> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return sine_with_debug_info(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::out_of_range("mine");
  }
};

// No operator makes the node of a Function. The next one is the first inside its forward.
TEST_F(ForwardPlaces, OfAFunctionAreThoseOfItsFirstOperator) {
  use(Errors::kFull);
  const at::Tensor y = SineThatFails::apply(at::ones({2}).requires_grad_().exp()).sum();
  const std::string note = note_of([&] { y.backward(); });
  EXPECT_THAT(note, HasSubstr("; Traceback of the next operator of the forward, aten::sin:\n"));
  EXPECT_THAT(note, HasSubstr(place_of_sine()));
  EXPECT_THAT(note, HasSubstr("  overdrive::test::"));
}

TEST_F(ForwardPlaces, AreNotThereForANodeThatABackwardMade) {
  use(Errors::kFull);
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor slope =
      torch::autograd::grad({x.exp().sin().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  slope.sum().backward();
  const std::string note = note_of([&] { slope.sum().backward(); });
  EXPECT_THAT(note, HasSubstr("node MulBackward0"));
  EXPECT_THAT(note, Not(HasSubstr("Traceback")));
}

}  // namespace
}  // namespace overdrive::test
