// Tensors that pass through hooks untouched, and results of hooks that are refused.
#include "hooks/interface/tensor_kinds.h"
#include "test/hooks/hooks_fixture.h"

#include "forward_ad/forward_ad.h"

#include <ATen/functorch/TensorWrapper.h>
#include <c10/core/impl/COW.h>
#include <torch/nn.h>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class OddTensors : public HooksTest {
 protected:
  // As an op saves it, inside a scope of hooks: not packed, and what comes back is `same` memory and kind.
  Tensor through(const Tensor& tensor) {
    const ScopedHooks scope(copying_);
    const SavedTensor saved(tensor);
    EXPECT_THAT(copying_->saves, IsEmpty());
    EXPECT_FALSE(is_packable(tensor));
    const Tensor back = saved.unpack();
    EXPECT_EQ(back.key_set().raw_repr(), tensor.key_set().raw_repr());
    EXPECT_EQ(back.sizes(), tensor.sizes());
    return back;
  }
};

TEST_F(OddTensors, WrappedNumbers) {
  const Tensor y = leaf_of({3}) * 1;
  const ScopedHooks scope(copying_);
  const Tensor product = y * 2.5;
  product.sum().backward();
  for (const SaveInfo& save : copying_->saves) EXPECT_NE(save.bytes, 4);
  Tensor number = at::scalar_tensor(2.0);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_FALSE(is_packable(number));
}

TEST_F(OddTensors, Sparse) {
  const Tensor back = through(at::eye(3).to_sparse());
  EXPECT_TRUE(at::equal(back.to_dense(), at::eye(3)));
  through(at::eye(3).to_sparse_csr());
}

TEST_F(OddTensors, Quantised) {
  const Tensor quantised = at::quantize_per_tensor(at::ones({4}), 0.5, 0, at::kQInt8);
  EXPECT_TRUE(at::equal(through(quantised).dequantize(), at::ones({4})));
}

TEST_F(OddTensors, Mkldnn) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "this LibTorch is built without MKLDNN";
  EXPECT_TRUE(at::equal(through(at::ones({2, 2}).to_mkldnn()).to_dense(), at::ones({2, 2})));
}

TEST_F(OddTensors, Nested) {
  const Tensor nested = at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})});
  const ScopedHooks scope(copying_);
  const SavedTensor saved(nested);
  EXPECT_FALSE(is_packable(nested));
  EXPECT_TRUE(saved.unpack().is_nested());
  EXPECT_THAT(copying_->saves, IsEmpty());
}

TEST_F(OddTensors, MetaAndEmptyAndZero) {
  through(at::empty({3}, at::kMeta));
  through(at::empty({0, 3}));
  through(at::_efficientzerotensor({3}, at::TensorOptions()));
}

TEST_F(OddTensors, CopyOnWriteStaysSo) {
  const Tensor original = at::ones({4}), lazy = at::_lazy_clone(original);
  const Tensor back = through(lazy);
  EXPECT_TRUE(c10::impl::cow::is_cow_data_ptr(back.storage().data_ptr()));
}

// A class of Python's is one to the dispatcher by this key; there is none in C++.
TEST_F(OddTensors, Subclasses) {
  const Tensor t = at::randn({3});
  EXPECT_TRUE(is_packable(t));
  t.unsafeGetTensorImpl()->set_python_dispatch(true);
  EXPECT_FALSE(is_packable(t));
  t.unsafeGetTensorImpl()->set_python_dispatch(false);
}

TEST_F(OddTensors, WithoutStorage) {
  Tensor t = at::ones({4});
  t.storage().set_data_ptr(c10::DataPtr(nullptr, c10::Device(at::kCPU)));
  EXPECT_FALSE(is_packable(t));
  through(t);
}

TEST_F(OddTensors, FunctorchWrappersKeepTheirDerivatives) {
  namespace fwd = forward_ad;
  const Tensor x = at::randn({3}), v = at::randn({3});
  const auto f = [](const Tensor& t) { return (t.exp() * t.sin()).sum(); };
  const auto plain = fwd::hvp(f, x, v);
  const ScopedHooks scope(copying_);
  const auto hooked = fwd::hvp(f, x, v);
  EXPECT_TRUE(same_bits(hooked.product, plain.product));
  EXPECT_TRUE(same_bits(hooked.gradient, plain.gradient));
  const fwd::DualLevel level;
  EXPECT_FALSE(is_packable(fwd::make_dual(x, v, level)));
}

// --- hooks that go wrong ---

class WrongHooks : public HooksTest {
 protected:
  // The error of a backward whose hook gives back `wrong`; afterwards this thread and another train as ever.
  std::string error_for(std::function<Tensor(const Tensor&)> wrong) {
    const Tensor expected = step();
    const auto hooks = make_hooks(
        [](const Tensor& t, const SaveInfo&) {
          return Packed{{t}, {}};
        },
        [&](Packed& packed, const UnpackInfo&) { return wrong(packed.tensors[0]); }, {.name = "the wrong one"});
    const Tensor y = leaf_of({3}) * 1;
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      loss = y.exp().sum();
    }
    const std::string error = message_of([&] { loss.backward(); }).message;
    EXPECT_TRUE(same_bits(step(), expected));
    std::thread([&] { EXPECT_TRUE(same_bits(step(), expected)); }).join();
    return error;
  }

  static Tensor step() {
    torch::manual_seed(11);
    torch::nn::Sequential net(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 2));
    net->forward(at::ones({3, 6})).pow(2).sum().backward();
    return net->parameters()[0].grad();
  }
};

TEST_F(WrongHooks, AreToldWhatTheyGaveAndWhatTheyShouldHave) {
  const auto expected = testing::AllOf(HasSubstr("the wrong one"), HasSubstr("[3]"), HasSubstr("ExpBackward0"));
  const std::string undefined = error_for([](const Tensor&) { return Tensor(); });
  EXPECT_THAT(undefined, testing::AllOf(expected, HasSubstr("undefined")));
  const std::string shape = error_for([](const Tensor& t) { return t.unsqueeze(0); });
  EXPECT_THAT(shape, testing::AllOf(expected, HasSubstr("[1, 3]")));
  const std::string type = error_for([](const Tensor& t) { return t.to(at::kDouble); });
  EXPECT_THAT(type, testing::AllOf(expected, HasSubstr("double")));
  const std::string device = error_for([](const Tensor& t) { return at::empty_like(t, at::kMeta); });
  EXPECT_THAT(device, testing::AllOf(expected, HasSubstr("meta")));
}

TEST_F(WrongHooks, ThatThrowInUnpackArriveAsTheyAre) {
  EXPECT_EQ(error_for([](const Tensor&) -> Tensor { throw std::runtime_error("no disk"); }), "no disk");
}

TEST_F(WrongHooks, ThatThrowInPackArriveFromTheOp) {
  const auto hooks =
      make_hooks([](const Tensor&, const SaveInfo&) -> Packed { throw std::runtime_error("full"); },
                 [](Packed&, const UnpackInfo&) { return Tensor(); });
  const Tensor expected = step(), x = leaf_of({3}), y = x * 1;
  {
    const ScopedHooks scope(hooks);
    EXPECT_EQ(message_of([&] { y.exp(); }).message, "full");
  }
  y.exp().sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.detach().exp()));
  EXPECT_TRUE(same_bits(step(), expected));
}

TEST_F(WrongHooks, MayGiveBackATensorMadeInInferenceMode) {
  const HooksPtr hooks = make_hooks(
      [](const Tensor& t, const SaveInfo&) {
        return Packed{{t.clone()}, {}};
      },
      [](Packed& packed, const UnpackInfo&) {
        const c10::InferenceMode mode;
        return packed.tensors[0] * 1;
      });
  const Tensor x = leaf_of({3});
  Tensor loss;
  {
    const ScopedHooks scope(hooks);
    loss = x.exp().sum();
  }
  const Tensor first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  first.sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.detach().exp()));
}

// LibTorch saves it, then draws it; the version does not tell.
TEST_F(OddTensors, TheNoiseOfRreluIsPackedWhenItIsDrawnOrIsAnError) {
  const auto run = [](const HooksPtr& hooks, bool in_place, bool training) {
    torch::manual_seed(3);
    const Tensor x = leaf_of({50});
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      Tensor y = x * 2;
      y = in_place ? at::rrelu_(y, 0.1, 0.9, training) : at::rrelu(y, 0.1, 0.9, training);
      loss = y.sum();
    }
    loss.backward();
    return x.grad();
  };
  const HooksPtr copying = std::make_shared<CopyingHooks>();
  for (const bool in_place : {false, true}) {
    EXPECT_THAT(
        message_of([&] { run(copying, in_place, true); }).message,
        testing::AllOf(testing::HasSubstr("CopyingHooks packed"), testing::HasSubstr("noise of rrelu")));
    EXPECT_TRUE(same_bits(run(copying, in_place, false), run(nullptr, in_place, false)));
    for (const HooksPtr& hooks : {keep(), schedulable(copying), schedulable(copying, {.window_tensors = 1})}) {
      EXPECT_TRUE(same_bits(run(hooks, in_place, true), run(nullptr, in_place, true))) << hooks->name();
    }
  }
}

TEST_F(WrongHooks, MayGiveBackATensorOfZerosWithoutMemory) {
  const HooksPtr hooks =
      make_hooks([](const Tensor&, const SaveInfo&) { return Packed(); },
                 [](Packed&, const UnpackInfo&) { return at::_efficientzerotensor({3}, at::kFloat); });
  const Tensor x = leaf_of({3});
  Tensor loss;
  {
    const ScopedHooks scope(hooks);
    const Tensor y = x * 1;
    loss = y.sin().sum() + (y * y).sum();
  }
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({3})));
}

TEST_F(WrongHooks, StridesAreNotTheirBusiness) {
  const auto hooks = make_hooks(
      [](const Tensor& t, const SaveInfo&) {
        return Packed{{t.contiguous()}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; }, {.lossless = true});
  const Tensor x = leaf_of({3, 4}), y = (x * 1).t();
  const ScopedHooks scope(hooks);
  const SavedTensor saved(y);
  EXPECT_TRUE(same_bits(saved.unpack(), y));
}

}  // namespace
}  // namespace overdrive::hooks
