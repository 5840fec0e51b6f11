// What may go into a region and come out of it.
#include "test/checkpoint/checkpoint_fixture.h"

#include <array>
#include <map>

namespace overdrive::checkpoint {
namespace {

OVERDRIVE_BOTH_FORMS(Values);

TEST_P(Values, AreThoseOfThePlainModel) {
  expect_same([&] { return block(x); },
              [&] {
                return checkpoint(
                    options(), [&](const Tensor& t) { return block(t); }, x);
              });
}

TEST_P(Values, MayBeTensorsAmongOtherThings) {
  const auto f = [&](const Tensor& a, int n, const std::vector<Tensor>& list, std::optional<Tensor> maybe,
                     const std::string& text) {
    EXPECT_EQ(text, "text");
    return std::tuple<Tensor, int, std::vector<Tensor>>(block(a) * n + list[0] + *maybe, n + 1,
                                                        {list[1].cos(), a.tan()});
  };
  const Tensor second = at::randn({4, 8});
  const std::vector<Tensor> list{second, second.detach().sin()};
  const auto sum = [](const std::tuple<Tensor, int, std::vector<Tensor>>& r) {
    EXPECT_EQ(std::get<1>(r), 4);
    return std::get<0>(r) + std::get<2>(r)[0] + std::get<2>(r)[1];
  };
  expect_same([&] { return sum(f(x, 3, list, second, "text")); },
              [&] { return sum(checkpoint(options(), f, x, 3, list, std::optional<Tensor>(second), "text")); });
}

TEST_P(Values, AreFoundInContainersOfTheStandardLibrary) {
  using Map = std::map<std::string, Tensor>;
  const auto f = [&](const std::optional<std::tuple<Tensor, int>>& maybe,
                     const std::vector<std::vector<Tensor>>& nested) {
    const Tensor y = block(std::get<0>(*maybe)) + nested[1][0];
    return std::tuple<std::array<Tensor, 2>, Map, std::vector<int>>({y, y.sin()},
                                                                    {{"a", y.cos()}, {"b", y.exp()}}, {1, 2});
  };
  const auto sum = [](const std::tuple<std::array<Tensor, 2>, Map, std::vector<int>>& r) {
    const auto& [array, map, numbers] = r;
    return array[0] + array[1] * map.at("a") + map.at("b") * numbers[1];
  };
  const auto arguments = [&] { return std::optional(std::tuple(x * 1, 2)); };
  const std::vector<std::vector<Tensor>> nested{{}, {at::ones({4, 8})}};
  expect_same([&] { return sum(f(arguments(), nested)); },
              [&] { return sum(checkpoint(options(), f, arguments(), nested)); });
}

TEST_P(Values, OfIntegerTypeComeBackDetached) {
  auto [value, index] = checkpoint(
      options(), [](const Tensor& t) { return t.max(1); }, x);
  EXPECT_EQ(index.scalar_type(), at::kLong);
  EXPECT_FALSE(index.requires_grad());
  value.sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 4);
}

TEST_P(Values, ThatNeedNoGradientGetNone) {
  const Tensor constant = at::randn({4, 8});
  const auto f = [&](const Tensor& a, const Tensor& b) { return block(a * b); };
  expect_same([&] { return f(x, constant); }, [&] { return checkpoint(options(), f, x, constant); });
  expect_same([&] { return f(constant, x); }, [&] { return checkpoint(options(), f, constant, x); });
  EXPECT_FALSE(constant.grad().defined());
}

TEST_P(Values, MayNeedNoGradientAtAllWhileParametersDo) {
  const Tensor constant = at::randn({4, 8});
  expect_same([&] { return block(constant); },
              [&] {
                return checkpoint(
                    options(), [&](const Tensor& t) { return block(t); }, constant);
              });
  EXPECT_TRUE(weight.grad().defined());
}

TEST_P(Values, WithoutATensorAreAnError) {
  EXPECT_THAT(error_of([&] {
                checkpoint(
                    options(), [&](int n) { return weight * n; }, 2);
              }),
              HasSubstr("there is no tensor among the inputs"));
}

// In the early form it would have lost its gradient.
TEST_P(Values, InAClassAreNotFound) {
  struct Mine {
    Tensor tensor;
  };
  const auto f = [&](const Tensor& t) { return Mine{block(t)}; };
  if (GetParam() == Form::kEarly) {
    EXPECT_THAT(error_of([&] { checkpoint(options(), f, x); }), HasSubstr("no tensor among the results"));
  } else {
    expect_same([&] { return f(x).tensor; }, [&] { return checkpoint(options(), f, x).tensor; });
  }
}

TEST_P(Values, UndefinedOnesArePassedOn) {
  const auto f = [&](const Tensor& a, const Tensor& none) {
    EXPECT_FALSE(none.defined());
    return std::pair(block(a), none);
  };
  auto [value, none] = checkpoint(options(), f, x, Tensor());
  EXPECT_FALSE(none.defined());
  value.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// Only the recomputation knows that the first output has no gradient. Dropping the output but not what came
// back for it would give the second output the gradient of the first.
TEST_P(Values, WithoutAGradientAreDroppedTogetherWithIt) {
  auto [constant, value] = checkpoint(
      options(), [](const Tensor& t) { return std::pair(t.detach() * 2, t * 3); }, x);
  (constant * 100 + value).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), at::full({4, 8}, 3.0f)));
}

TEST_P(Values, MayShareOneTensor) {
  const auto f = [&](const Tensor& t) {
    const Tensor y = block(t);
    return std::pair(y, y);
  };
  const auto both = [](const std::pair<Tensor, Tensor>& r) { return r.first * 2 + r.second * 3; };
  expect_same([&] { return both(f(x)); }, [&] { return both(checkpoint(options(), f, x)); });
}

TEST_P(Values, MayHaveNoGradientInTheMiddle) {
  const auto f = [&](const Tensor& t) { return std::tuple(t.sin(), block(t), t.exp()); };
  const auto ends = [](const std::tuple<Tensor, Tensor, Tensor>& r) { return std::get<0>(r) * std::get<2>(r); };
  expect_same([&] { return ends(f(x)); }, [&] { return ends(checkpoint(options(), f, x)); });
}

TEST_P(Values, MayBeAnInput) {
  const auto f = [&](const Tensor& t) { return std::pair(t, block(t)); };
  const auto product = [](const std::pair<Tensor, Tensor>& r) { return r.first * r.second; };
  const Tensor direct = product(f(x)), through = product(checkpoint(options(), f, x));
  EXPECT_TRUE(same_bits(through.detach(), direct.detach()));
  direct.sum().backward();
  const Tensor want = x.grad().clone();
  clear_gradients();
  through.sum().backward();
  // x is used inside the region and beside it: the two gradients are added in another order.
  EXPECT_TRUE(at::allclose(x.grad(), want, 1e-5, 1e-6));
}

TEST_P(Values, MayBeViewsAndWrittenInPlaceInside) {
  const auto f = [&](const Tensor& t) {
    Tensor y = at::linear(t, weight);
    y.view({-1}).slice(0, 0, 7).mul_(2);
    y.relu_();
    return y.t();
  };
  expect_same([&] { return f(x).cos(); }, [&] { return checkpoint(options(), f, x).cos(); });
}

TEST_P(Values, MustNotBeAnInputWrittenInPlace) {
  const Tensor y = x * 1;
  EXPECT_THAT(error_of([&] {
                checkpoint(
                    options(), [](Tensor t) { return t.mul_(2); }, y);
              }),
              HasSubstr("changed tensor 0 of its inputs in place"));
}

TEST_P(Values, ThatShareMemoryMustNotBeWrittenInPlace) {
  const auto both = [&](const Tensor& t) {
    const Tensor y = block(t);
    return std::pair(y, y.view({-1}));
  };
  const auto captured = [&](const Tensor& t) { return std::pair(block(t), weight.view({-1})); };
  const auto sum = [](std::pair<Tensor, Tensor> r, bool write) {
    if (write) r.first.mul_(2);
    return r.first.sum() * r.second.sin().sum();
  };
  expect_same([&] { return sum(both(x), false); }, [&] { return sum(checkpoint(options(), both, x), false); });
  if (GetParam() == Form::kOnDemand) {
    return expect_same([&] { return sum(both(x), true); },
                       [&] { return sum(checkpoint(options(), both, x), true); });
  }
  const Tensor y = sum(checkpoint(options(), both, x), true);
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("Output 1 of checkpointed region"));
  auto [value, view] = checkpoint(options(), captured, x);
  view.detach().mul_(2);
  const Tensor z = value.sum() * view.sum();
  EXPECT_THAT(error_of([&] { z.backward(); }), HasSubstr("shares its memory"));
  // Beside each other they may be.
  const auto apart = [&](const Tensor& t) {
    const Tensor u = block(t);
    return std::pair(u.slice(0, 0, 2), u.slice(0, 2));
  };
  expect_same([&] { return sum(apart(x), true); }, [&] { return sum(checkpoint(options(), apart, x), true); });
}

TEST_P(Values, ChangedBetweenForwardAndRecomputationAreTheUsualError) {
  Tensor y = x * 1;
  const Tensor z = checkpoint(
      options(), [&](const Tensor& t) { return block(t); }, y);
  y.add_(1);
  EXPECT_THAT(error_of([&] { z.sum().backward(); }), HasSubstr("modified by an inplace operation"));
}

TEST_P(Values, AreComputedPlainlyWithoutGradMode) {
  const at::NoGradGuard no_grad;
  int runs = 0;
  const Tensor y = checkpoint(
      options(),
      [&](const Tensor& t) {
        ++runs;
        EXPECT_FALSE(is_checkpointing());
        return block(t);
      },
      x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(runs, 1);
}

struct ReturnsWhatItSaved : torch::autograd::Function<ReturnsWhatItSaved> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a, const Tensor& gradient) {
    context->save_for_backward({gradient});
    return a * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list) {
    return {context->get_saved_variables()[0], {}};
  }
};

// The last node that has the region's argument returns it, and the leaf would take it over.
TEST_P(Values, AreNotTakenOverAsGradients) {
  const Tensor first = at::randn({4, 8}).requires_grad_(), second = at::randn({4, 8}).requires_grad_();
  const Tensor y = checkpoint(
      options(),
      [&](const Tensor& t) {
        return ReturnsWhatItSaved::apply(first, t) + ReturnsWhatItSaved::apply(second, t) + t;
      },
      x);
  const Tensor before = x.detach().clone();
  y.sum().backward();
  first.grad().zero_();
  second.grad().zero_();
  EXPECT_TRUE(at::equal(x, before));
}

TEST_P(Values, AreLetGoWithTheGraph) {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> watched;
  {
    const Tensor y = x * 2;
    const Tensor scale = at::ones({1});
    watched.emplace_back(y.getIntrusivePtr());
    watched.emplace_back(scale.getIntrusivePtr());
    checkpoint(
        options(), [this, scale](const Tensor& t) { return block(t) * scale; }, y)
        .sum()
        .backward();
    checkpoint(
        options(), [this, scale](const Tensor& t) { return block(t) * scale; }, y);  // never run back
  }
  for (const auto& tensor : watched) EXPECT_TRUE(tensor.expired());
}

}  // namespace
}  // namespace overdrive::checkpoint
