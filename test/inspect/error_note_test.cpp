// The notes of errors out of a backward; the errors stay stock's.
#include "inspect/errors/error_note.h"

#include "test/support/caught.h"
#include "test/support/contract.h"

#include <torch/csrc/autograd/anomaly_mode.h>

namespace overdrive::test {
namespace {

using engine::Errors;
using testing::HasSubstr;
using testing::Not;

struct Noted {
  Caught caught;
  std::string note;
  std::string what;  // without a backtrace
};

Noted noted(const std::function<void()>& call) {
  Noted result;
  result.caught = message_of([&] {
    try {
      call();
    } catch (const std::exception& error) {
      result.note = error_note(error);
      const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
      result.what = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
      throw;
    }
  });
  return result;
}

class ErrorNote : public ContractBase {
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
};

variable_list pass(variable_list&& gradients) { return std::move(gradients); }

// Errors of each kind, each from a graph of its own.
std::vector<std::function<void()>> failing_backwards() {
  return {
      [] {  // a second time
        const at::Tensor x = at::ones({2, 3}).requires_grad_();
        const at::Tensor y = (x * x).sin().sum();
        y.backward();
        y.backward();
      },
      [] {  // changed in place
        const at::Tensor x = at::ones({2}).requires_grad_();
        const at::Tensor a = x.exp();
        const at::Tensor y = a.sum();
        a.add_(1);
        y.backward();
      },
      [] {  // a gradient of a wrong shape
        const at::Tensor x = at::ones({2}).requires_grad_();
        output_of(make_node("bad", {accumulator(x)}, [](variable_list&&) {
          return variable_list{at::ones({7})};
        })).backward();
      },
      [] {  // an error of the program's own
        output_of(make_node("thrower", {accumulator(leaf())}, [](variable_list&&) -> variable_list {
          throw std::out_of_range("mine");
        })).backward();
      },
  };
}

TEST_F(ErrorNote, LeavesTypeAndTextAsStockHasThem) {
  for (const auto& fails : failing_backwards()) {
    const Caught stock = on<StockEngine>([&] {
      Caught caught = message_of(fails);
      forget_failed_run();
      return caught;
    });
    for (const Errors errors : {Errors::kPlain, Errors::kNote, Errors::kFull}) {
      use(errors);
      const Noted ours = noted(fails);
      EXPECT_EQ(ours.caught, stock);
      EXPECT_THAT(ours.note, HasSubstr("node ")) << stock;
      EXPECT_THAT(ours.note, HasSubstr("path ")) << stock;
      EXPECT_EQ(last_error_note(), ours.note);
      if (errors == Errors::kPlain) {
        EXPECT_THAT(ours.what, Not(HasSubstr("Overdrive"))) << stock;
      }
    }
  }
}

TEST_F(ErrorNote, NamesNodeNumberPathAndShapes) {
  use(Errors::kPlain);
  const at::Tensor x = at::ones({2, 3}).requires_grad_();
  const at::Tensor y = (x * x).sin().sum();
  const uint64_t number = y.grad_fn()->sequence_nr();
  y.backward();
  const Noted again = noted([&] { y.backward(); });
  EXPECT_EQ(again.note, c10::str("node SinBackward0 #", number - 1,
                                 ", for gradients [2, 3] Float on cpu; path SumBackward0 #", number,
                                 " > SinBackward0 #", number - 1, "; its saved tensors were released"));
}

TEST_F(ErrorNote, IsPartOfTheTextWhereAsked) {
  use(Errors::kNote);
  const Noted ours = noted(failing_backwards()[0]);
  EXPECT_THAT(ours.what, HasSubstr("Overdrive: node SinBackward0"));
  EXPECT_THAT(ours.caught.message, Not(HasSubstr("Overdrive")));
}

TEST_F(ErrorNote, BlamesNoBackwardThatKeptItsGraph) {
  use(Errors::kFull);
  const at::Tensor y = at::ones({2}).requires_grad_().exp();
  y.sum().backward({}, /*retain_graph=*/true);
  y.grad_fn()->release_variables();  // by the program's own hand
  const Noted ours = noted([&] { y.sum().backward(); });
  EXPECT_THAT(ours.note, HasSubstr("its saved tensors were released"));
  EXPECT_THAT(ours.note, Not(HasSubstr("released by")));
}

TEST_F(ErrorNote, TellsWhichBackwardReleasedTheTensorsWhereRecorded) {
  use(Errors::kFull);
  const Noted ours = noted(failing_backwards()[0]);
  EXPECT_THAT(ours.note, HasSubstr("were released by backward "));
}

TEST_F(ErrorNote, NamesTheOperatorThatChangedATensorInPlaceWhereRecorded) {
  const auto note_after = [](const std::function<void(at::Tensor&)>& change) {
    const at::Tensor x = at::ones({2, 3}).requires_grad_();
    at::Tensor a = x.exp(), other = x.exp();
    const at::Tensor y = a.sum();
    other.sub_(1);  // has the same looks and versions, and is gone before the error
    other = at::Tensor();
    change(a);
    return noted([&] { y.backward(); }).note;
  };
  use(Errors::kFull);
  EXPECT_THAT(note_after([](at::Tensor& a) { a.add_(1); }),
              HasSubstr("; the tensor was changed by aten::add_"));
  EXPECT_THAT(note_after([](at::Tensor& a) {
                const at::NoGradGuard none;
                a.mul_(2).sub_(1);  // the first is the one that matters
                at::add_out(a, a, a);
              }),
              HasSubstr("; the tensor was changed by aten::mul_"));
  EXPECT_THAT(note_after([](at::Tensor& a) { a.select(0, 1).relu_(); }),
              HasSubstr("; the tensor was changed by aten::relu_"));
  EXPECT_THAT(note_after([](at::Tensor& a) { torch::autograd::impl::bump_version(a); }),
              Not(HasSubstr("the tensor was changed by")));
  use(Errors::kNote);
  EXPECT_THAT(note_after([](at::Tensor& a) { a.add_(1); }), Not(HasSubstr("the tensor was changed by")));
}

TEST_F(ErrorNote, NamesEachOperatorThatMayHaveChangedTheTensor) {
  use(Errors::kFull);
  const at::Tensor x = at::ones({2, 3}).requires_grad_();
  at::Tensor a = x.exp(), b = x.exp();
  a.add_(1);
  b.mul_(2);
  EXPECT_THAT(noted([&] { (a + b).sum().backward(); }).note,
              HasSubstr("; the tensor was changed by aten::add_ or aten::mul_"));
}

TEST_F(ErrorNote, KeepsNativeNodesRunningWhileItRecords) {
  const auto own_nodes = [this](Errors errors) {
    use(errors);
    reset_stats();
    const at::Tensor x = at::ones({2, 3}).requires_grad_();
    x.exp().sum().backward();
    uint64_t own = 0;
    for (const auto& [type, count] : stats().own_nodes) own += count;
    return own;
  };
  // Two, or none where a test before this one has used saved-tensor hooks in the process.
  EXPECT_EQ(own_nodes(Errors::kFull), own_nodes(Errors::kPlain));
}

TEST_F(ErrorNote, HasTheForwardsStackWhereAnomalyModeRecordedOne) {
  use(Errors::kFull);
  allow_forwarding();
  const at::Tensor x = at::ones({2}).requires_grad_();
  at::Tensor y;
  {
    const torch::autograd::DetectAnomalyGuard guard;
    y = x.exp().sum();
  }
  y.backward();
  EXPECT_THAT(noted([&] { y.backward(); }).note, HasSubstr("Traceback of forward call"));
}

TEST_F(ErrorNote, OfANestedBackwardNamesTheNodesAround) {
  use(Errors::kPlain);
  const at::Tensor around = output_of(make_node("around", {accumulator(leaf())}, [](variable_list&& grads) {
    failing_backwards()[3]();
    return std::move(grads);
  }));
  const std::string note = noted([&] { around.backward(); }).note;
  EXPECT_THAT(note, testing::MatchesRegex("node thrower #[^\n]*\ninside node around #[^\n]*"));
}

TEST_F(ErrorNote, HasTheWayOfThePlanWhateverHooksHaveDoneToEdges) {
  //  {loss} --> {beside} --> {leaf}
  //         \-> {way} --> {thrower}, and points `beside` to {thrower}
  use(Errors::kPlain);
  const NodePtr thrower = make_node("thrower", {accumulator(leaf())},
                                    [](variable_list&&) -> variable_list { throw std::out_of_range("mine"); });
  NodePtr beside;
  const NodePtr way = make_node("way", {{thrower, 0}}, [&](variable_list&& gradients) {
    beside->next_edges()[0] = {thrower, 0};
    return std::move(gradients);
  });
  beside = make_node("beside", {accumulator(leaf())}, pass);
  const NodePtr loss = make_node("loss", {{beside, 0}, {way, 0}}, [](variable_list&& gradients) {
    return variable_list{gradients[0], gradients[0]};
  });
  const std::string note = noted([&] { output_of(loss).backward(); }).note;
  EXPECT_THAT(note, testing::MatchesRegex(".*; path loss #[0-9]* > way #[0-9]* > thrower #[0-9]*"));
}

TEST_F(ErrorNote, HasNoWayThatHooksHaveCut) {
  use(Errors::kPlain);
  NodePtr loss;
  const NodePtr way =
      make_node("way",
                {{make_node("thrower", {accumulator(leaf())},
                            [](variable_list&&) -> variable_list { throw std::out_of_range("mine"); }),
                  0}},
                [&](variable_list&& gradients) {
                  loss->next_edges().clear();
                  return std::move(gradients);
                });
  loss = make_node("loss", {{way, 0}}, pass);
  const std::string note = noted([&] { output_of(loss).backward(); }).note;
  EXPECT_THAT(note, testing::AllOf(HasSubstr("node thrower #"), Not(HasSubstr("path"))));
}

TEST_F(ErrorNote, ShortensALongPath) {
  use(Errors::kPlain);
  at::Tensor y = output_of(make_node("thrower", {accumulator(leaf())}, [](variable_list&&) -> variable_list {
    throw std::out_of_range("mine");
  }));
  for (int i = 0; i < 50; ++i) y = y.sin();
  EXPECT_THAT(noted([&] { y.backward(); }).note, HasSubstr(" > ... 44 more ... > "));
}

TEST_F(ErrorNote, IsEmptyForOtherErrors) { EXPECT_EQ(error_note(std::runtime_error("not of a backward")), ""); }

}  // namespace
}  // namespace overdrive::test
