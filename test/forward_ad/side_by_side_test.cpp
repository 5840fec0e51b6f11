// Values that lie side by side with their tangents, from a joined product on, and results
// that are made in one pass.
#include "test/forward_ad/forward_ad_fixture.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <map>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

class SideBySide : public ForwardAdTest {
 protected:
  static bool lies_beside_its_tangent(const Tensor& dual) {
    const Tensor& tangent = dual._fw_grad(0);
    return tangent.defined() &&
           static_cast<const char*>(dual.const_data_ptr()) + dual.nbytes() == tangent.const_data_ptr();
  }

  // Large enough for joined products.
  Tensor weight_ = random({256, 256}) / 16, bias_ = random({256}), x_ = random({8, 256}), v_ = random({8, 256});
};

// How often operators were called by this thread meanwhile.
class CallCounter {
 public:
  CallCounter() {
    counted = &calls_;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                                  -> std::unique_ptr<at::ObserverContext> {
                                     if (counted != nullptr) ++(*counted)[function.name()];
                                     return nullptr;
                                   }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CallCounter() {
    at::removeCallback(handle_);
    counted = nullptr;
  }
  int operator[](const char* name) { return calls_[name]; }

 private:
  static inline thread_local std::map<std::string, int>* counted = nullptr;
  std::map<std::string, int> calls_;
  at::CallbackHandle handle_;
};

TEST_F(SideBySide, ANetworkBringsItsRowsTogetherOnce) {
  auto network = [&](const Tensor& x) {
    Tensor y = x;
    for (int layer = 0; layer < 3; ++layer) y = at::linear(y, weight_, bias_).tanh();
    return y.square().sum();
  };
  {
    CallCounter calls;
    jvp(network, x_, v_);
    EXPECT_EQ(calls["aten::cat"], 1);
    EXPECT_EQ(calls["aten::mm"], 3);
  }
  CallCounter calls;
  hvp(network, x_, v_);
  EXPECT_EQ(calls["aten::cat"], 1);
}

TEST_F(SideBySide, AHalfIsATensorLikeOthers) {
  Tensor want = x_.mm(weight_), slope = v_.mm(weight_), kept, kept_tangent;
  jvp(
      [&](const Tensor& t) {
        Tensor y = t.mm(weight_);
        EXPECT_TRUE(lies_beside_its_tangent(y));
        EXPECT_EQ(y.storage().nbytes(), y.nbytes());
        EXPECT_EQ(y.storage_offset(), 0);
        EXPECT_FALSE(y.is_view());
        Tensor tangent = t.mm(weight_)._fw_grad(0);  // outlives its value
        EXPECT_TRUE(close(tangent, slope));
        tangent.resize_({9, 256}).fill_(1);
        kept = y, kept_tangent = y._fw_grad(0);
        Tensor detached = y.detach().set_(y.storage());
        detached.resize_({4096}).fill_(7);  // takes memory of its own
        EXPECT_TRUE(close(kept_tangent, slope));
        return y.sum();
      },
      x_, v_);
  EXPECT_TRUE(close(kept_tangent, slope));
  kept_tangent = Tensor();
  EXPECT_TRUE(close(kept, at::full_like(kept, 7)));
}

TEST_F(SideBySide, AreWrittenIntoInPlace) {
  auto f = [&](const Tensor& t) {
    Tensor y = t.mm(weight_).tanh();
    y.mul_(t);
    y.narrow(0, 1, 2).exp_();
    y.select(1, 3).copy_(t.select(1, 4));
    return y.mm(weight_);
  };
  auto bare = jvp(f, x_, v_);
  DualLevel layered;
  auto want = jvp(f, x_, v_);
  EXPECT_TRUE(close(bare.value, want.value));
  EXPECT_TRUE(close(bare.tangent, want.tangent));
}

// Otherwise a value that a program keeps would keep its tangent's memory.
TEST_F(SideBySide, ResultsOfADriverAreApart) {
  auto product = [&](const Tensor& t) {
    Tensor y = t.mm(weight_);
    return with_aux(y, {y.tanh()});
  };
  auto [value, tangent, aux] = jvp(product, x_, v_);
  auto distance = [](const Tensor& a, const Tensor& b) {
    return std::abs(static_cast<const char*>(a.const_data_ptr()) -
                    static_cast<const char*>(b.const_data_ptr()));
  };
  EXPECT_GT(distance(value, tangent), static_cast<std::ptrdiff_t>(value.nbytes()));
  EXPECT_TRUE(close(value, x_.mm(weight_)));
  EXPECT_TRUE(close(tangent, v_.mm(weight_)));
  EXPECT_TRUE(close(aux[0], value.tanh()));
}

// Every way that a product and what follows it can be computed, in each type, beside reverse
// mode and beside layers, where LibTorch's formulas are used.
TEST_F(SideBySide, HaveTheDerivativesOfTheFormulas) {
  Tensor w = weight_, b = bias_, square = random({256, 256}), wide = random({8, 512}).narrow(1, 100, 256);
  const std::pair<const char*, Function> networks[] = {
      {"tanh", [&](const Tensor& t) { return at::linear(t, w, b).tanh().mm(w).tanh(); }},
      {"sigmoid", [&](const Tensor& t) { return at::linear(t, w).sigmoid().mm(w.t()).sigmoid().mm(w); }},
      {"relu", [&](const Tensor& t) { return at::linear(t.mm(w).relu(), w, b).relu(); }},
      {"silu", [&](const Tensor& t) { return at::silu(t.mm(w)).mm(w) * at::silu(t.mm(w.t())); }},
      {"gelu", [&](const Tensor& t) { return at::gelu(t.mm(w), "tanh").mm(w) + at::gelu(t.mm(w)); }},
      {"addmm", [&](const Tensor& t) { return at::addmm(b, at::addmm(t, t, w, 0.5), w, 2).square(); }},
      {"addmm_beta_0", [&](const Tensor& t) { return at::addmm(at::full_like(b, NAN), t, w, 0) * t; }},
      {"dual_bias", [&](const Tensor& t) { return at::linear(t, w, t[0]).tanh() * t; }},
      {"three_dimensions",
       [&](const Tensor& t) {
         return at::linear(t.view({2, 4, 256}), w, b).tanh();
       }},
      {"no_rows_or_few",
       [&](const Tensor& t) { return at::linear(t.narrow(0, 3, 0), w, b).sum() + w.mv(t[0]); }},
      {"transposed_rows",
       [&](const Tensor& t) {
         return t.t().reshape({256, 8}).t().mm(w).t().tanh();
       }},
      {"broadcast", [&](const Tensor& t) { return t.mm(w) * t[0] + t.mm(w) * t.sum(); }},
      {"part", [&](const Tensor& t) { return wide * t.mm(w).narrow(0, 0, 8) * t.mm(square)[1]; }},
      {"powers", [&](const Tensor& t) { return (t.mm(w).pow(2) + t.mm(w).pow(1) + t.mm(w).pow(3)).mm(w); }},
  };
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kDouble ? 1e-10 : type == at::kFloat ? 2e-4 : 0.1;
    auto cast = [&](const Tensor& tensor) { return tensor.to(type); };
    w = cast(weight_), b = cast(bias_), wide = cast(wide), square = cast(square);
    for (const auto& [name, network] : networks) {
      SCOPED_TRACE(std::string(name) + " in " + c10::toString(type));
      auto number = [&f = network](const Tensor& t) { return f(t).square().sum(); };
      for (bool contiguous : {true, false}) {
        Tensor x = cast(x_), v = cast(v_);
        if (!contiguous) x = x.t().contiguous().t(), v = at::stack({v, v}, 1).select(1, 0);
        auto bare = jvp(network, x, v);
        Tensor forward = hvp(number, x, v).product,
               reverse = hvp(number, x, v, HvpMode::kReverseOverReverse).product;
        EXPECT_EQ(bare.value.scalar_type(), type);
        EXPECT_TRUE(close(bare.value, network(x), tolerance));
        EXPECT_TRUE(close(forward, reverse, tolerance));
        DualLevel layered;
        EXPECT_TRUE(close(bare.tangent, jvp(network, x, v).tangent, tolerance));
      }
    }
  }
}

// The program's own recording goes on through values and tangents.
TEST_F(SideBySide, LeaveWhatIsRecordedToLibTorch) {
  Tensor v = v_.clone().set_requires_grad(true), b = bias_.clone().set_requires_grad(true);
  auto f = [&](const Tensor& t) { return at::linear(t, weight_, b).tanh(); };
  auto [value, tangent] = jvp(f, x_, v);
  auto gradients = torch::autograd::grad({tangent.sum() + value.sum()}, {v, b});
  uint64_t programs = torch::autograd::forward_ad::enter_dual_level();  // in the way: the driver takes a layer
  auto [of_layer, slope] = jvp(f, x_, v);
  auto want = torch::autograd::grad({slope.sum() + of_layer.sum()}, {v, b});
  torch::autograd::forward_ad::exit_dual_level(programs);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(close(gradients[i], want[i], 1e-10)) << i;
}

TEST_F(SideBySide, MistakesAreStillLibTorchsErrors) {
  auto message = [&](const Function& f) { return error_of([&] { jvp(f, x_, v_); }); };
  auto plain = [&](const Function& f) { return error_of([&] { f(x_); }); };
  const Function mistakes[] = {
      [&](const Tensor& t) { return t.mm(weight_.narrow(0, 0, 255)); },
      [&](const Tensor& t) { return t.mm(weight_.to(at::kFloat)); },
      [&](const Tensor& t) { return at::linear(t, weight_, bias_.narrow(0, 0, 3)); },
      [&](const Tensor& t) { return at::addmm(bias_.to(at::kFloat), t, weight_); },
  };
  for (size_t i = 0; i < std::size(mistakes); ++i) {
    EXPECT_NE(plain(mistakes[i]), "(no error)") << i;
    EXPECT_EQ(message(mistakes[i]), plain(mistakes[i])) << i;
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
