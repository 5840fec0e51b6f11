#include "test/engine/native_nodes/programs.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>

namespace overdrive::test {
namespace {

// The same on every engine; no generator of LibTorch's, which the forward may use.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ >> 33;
  }
  double usual() { return static_cast<double>(next() % 4000) / 1000 - 1.9995; }
  double odd() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kOdd[] = {0.0, -0.0, kInfinity, -kInfinity, 1e-42, -1e-42, 3e38, 1, -1};
    const uint64_t which = next() % 24;
    // Of both signs, and often enough to meet: the sign of a product tells which factor it is from.
    if (which >= 21) return std::copysign(std::numeric_limits<double>::quiet_NaN(), which == 21 ? 1.0 : -1.0);
    return which < std::size(kOdd) ? kOdd[which] : usual();
  }

 private:
  uint64_t state_;
};

at::Tensor make(at::IntArrayRef sizes, at::ScalarType type, bool odd, Numbers& numbers) {
  at::Tensor made = at::empty(sizes, at::kDouble);
  auto* data = made.mutable_data_ptr<double>();
  for (int64_t i = 0; i < made.numel(); ++i) data[i] = odd ? numbers.odd() : numbers.usual();
  return made.to(type);
}

std::string bits_of(const at::Tensor& t) {
  const at::NoGradGuard no_grad;
  const at::Tensor dense = t.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(dense.const_data_ptr());
  uint64_t hash = 14695981039346656037ull;
  for (size_t i = 0; i < dense.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  std::ostringstream text;
  text << std::hex << hash;
  if (dense.numel() > 0 && dense.numel() < 60) {
    text << std::dec << " (";
    const at::Tensor flat = dense.is_complex() ? at::view_as_real(dense).reshape(-1) : dense.reshape(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) text << flat[i].item<double>() << " ";
    text << ")";
  }
  return text.str();
}

// What storages there are, by the order in which they are met.
class Seen {
 public:
  std::string describe(const at::Tensor& t) {
    if (!t.defined()) return "undefined";
    if (t.is_sparse()) return "sparse " + describe(t._indices()) + describe(t._values());
    std::ostringstream text;
    text << t.scalar_type() << t.sizes() << " strides " << t.strides() << " +" << t.storage_offset() << " v"
         << t._version() << (t.is_view() ? " view" : "") << (t.requires_grad() ? " asks" : "")
         << (t.is_leaf() ? "" : " history") << tangent(t) << " of " << t.storage().nbytes()
         << " bytes, storage " << name(t.storage().unsafeGetStorageImpl()) << " with "
         << t.storage().use_count() << " owners, bits " << bits_of(t);
    if (t.is_view()) text << " base " << t._base().sizes() << " v" << t._base()._version();
    return text.str();
  }

 private:
  static std::string tangent(const at::Tensor& t) {
    const at::Tensor& tangent = t._fw_grad(0);
    return tangent.defined() ? " tangent " + bits_of(tangent) : "";
  }
  size_t name(const void* storage) {
    const auto found = std::find(storages_.begin(), storages_.end(), storage);
    if (found != storages_.end()) return static_cast<size_t>(found - storages_.begin());
    storages_.push_back(storage);
    return storages_.size() - 1;
  }
  std::vector<const void*> storages_;
};

at::Tensor shape_operand(const at::Tensor& leaf, Operand how) {
  switch (how) {
    case Operand::kFresh:
      return leaf * 1.25;
    case Operand::kTransposed:
      return leaf.dim() < 2 ? leaf : leaf.transpose(-1, -2).contiguous().transpose(-1, -2);
    case Operand::kSliced:
      return leaf.dim() < 1 ? leaf : at::stack({leaf, leaf}, -1).select(-1, 1);
    case Operand::kExpanded:
      return leaf.dim() < 1 ? leaf : leaf.narrow(0, 0, std::min<int64_t>(leaf.size(0), 1)).expand(leaf.sizes());
    // LibTorch makes the node of such a view again after its base was changed.
    case Operand::kRealPart:
      return leaf.is_complex() ? leaf : at::real(at::complex(leaf, at::ones_like(leaf)));
    default:
      return leaf;
  }
}

at::Tensor root_gradient(const at::Tensor& root, Root how, Numbers& numbers) {
  const at::Tensor plain = make(root.sizes(), root.scalar_type(), how == Root::kOdd, numbers);
  switch (how) {
    case Root::kExpanded:
      return at::full({}, 0.75, root.options().requires_grad(false)).expand(root.sizes());
    case Root::kTransposed:
      return plain.dim() < 2 ? plain : plain.transpose(0, 1).contiguous().transpose(0, 1);
    case Root::kSliced:
      return at::stack({plain, plain}, -1).select(-1, 1);
    default:
      return plain;
  }
}

at::Tensor wire(const at::Tensor& result, Wiring how) {
  switch (how) {
    case Wiring::kAlone:
      return result * 1.5;
    case Wiring::kTwice:
      return result * 1.5 + result * -0.5;
    case Wiring::kSecond:
      return result.neg() * 2 + result;
    case Wiring::kShared:
      return result + result;
    default:
      return result;
  }
}

// Level 0 of forward mode, while it lives.
class Level {
 public:
  explicit Level(bool open) : open_(open) {
    if (open_) torch::autograd::ForwardADLevel::get_next_idx();
  }
  ~Level() {
    if (open_) torch::autograd::ForwardADLevel::release_idx(0);
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  const bool open_;
};

}  // namespace

std::string NativeProgram::name() const {
  std::ostringstream text;
  text << row->type << " by " << row->what << " of " << type << "/" << second_type << " operand "
       << static_cast<int>(operand) << " values " << static_cast<int>(values) << " root "
       << static_cast<int>(root) << " wiring " << static_cast<int>(wiring) << " around "
       << static_cast<int>(around);
  return text.str();
}

std::string NativeProgram::run() const {
  Numbers numbers(seed);
  variable_list leaves, operands;
  at::Tensor result, z;
  const Level level(around == Around::kTangents);
  try {
    for (size_t i = 0; i < row->operands.size(); ++i) {
      leaves.push_back(make(row->operands[i], i == 0 ? type : second_type, values == Values::kOdd, numbers)
                           .set_requires_grad(true));
      if (around == Around::kTangents)
        leaves[i]._set_fw_grad(make(row->operands[i], leaves[i].scalar_type(), false, numbers), 0, false);
      operands.push_back(shape_operand(leaves[i], operand));
    }
    result = row->run(operands);
    z = wire(result, wiring);
  } catch (const std::exception&) {
    return "refused";
  }
  if (!z.requires_grad()) return "refused";
  const at::Tensor gradient = root_gradient(z, root, numbers);
  std::ostringstream text;
  Seen seen;
  variable_list held, captured;
  at::Tensor other;
  const auto at_first = [&] {
    switch (around) {
      case Around::kHasGradient:
      case Around::kGradientIsHeld:
      case Around::kGradientWasSaved:
        for (at::Tensor& leaf : leaves) leaf.mutable_grad() = at::ones_like(leaf).detach() * 0.25;
        break;
      case Around::kHasTransposed:
        for (at::Tensor& leaf : leaves) {
          leaf.mutable_grad() = at::ones_like(leaf).detach();
          if (leaf.dim() == 2) leaf.mutable_grad() = at::ones({leaf.size(1), leaf.size(0)}, leaf.options()).t();
        }
        break;
      case Around::kHasSparse:
        for (at::Tensor& leaf : leaves) {
          if (leaf.dim() > 0) leaf.mutable_grad() = at::ones_like(leaf).detach().to_sparse();
        }
        break;
      default:
        break;
    }
    if (around == Around::kGradientIsHeld) {
      for (const at::Tensor& leaf : leaves) held.push_back(leaf.grad().view(-1));
    }
    if (around == Around::kGradientWasSaved) {
      other = (at::ones_like(leaves[0].grad()).set_requires_grad(true) * leaves[0].grad()).sum();
    }
    if (around == Around::kHook) result.register_hook([&](const at::Tensor& g) { held.push_back(g); });
  };
  const auto back = [&](bool keep) {
    const auto edge = torch::autograd::impl::gradient_edge(z);
    torch::autograd::edge_list to;
    if (around == Around::kGrad) {
      for (const at::Tensor& t : operands) to.push_back(torch::autograd::impl::gradient_edge(t));
    } else if (around == Around::kInputs) {
      to.push_back(torch::autograd::impl::gradient_edge(leaves[0]));
    }
    captured = torch::autograd::Engine::get_default_engine().execute(
        {edge}, {gradient}, keep, around == Around::kCreateGraph, around != Around::kGrad, to);
  };
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const c10::Error& error) {  // what() looks up the names of all frames
      text << "error " << error.what_without_backtrace() << "\n";
    } catch (const std::exception& error) {
      text << "error " << error.what() << "\n";
    }
  };
  const auto tell = [&] {
    for (const at::Tensor& leaf : leaves) {
      text << "leaf v" << leaf._version() << " " << bits_of(leaf) << " grad " << seen.describe(leaf.grad())
           << "\n";
    }
    for (const at::Tensor& t : operands)
      text << "operand of " << (t.grad_fn() ? t.grad_fn()->name() : "none") << "\n";
    text << "result v" << result._version() << " " << bits_of(result) << "\n";
    text << "gradient " << seen.describe(gradient) << "\n";
    for (const at::Tensor& t : captured) text << "captured " << seen.describe(t) << "\n";
    for (const at::Tensor& t : held) text << "held " << seen.describe(t) << "\n";
  };
  attempt(at_first);
  if (around == Around::kChanged) {
    for (const at::Tensor& t : operands) {
      if (operand == Operand::kRealPart && t.is_view()) attempt([&] { at::Tensor(t._base()).mul_(1); });
    }
    const at::NoGradGuard no_grad;
    for (const at::Tensor& t : operands) {
      if (operand != Operand::kRealPart) attempt([&] { t.mul_(1); });
    }
    attempt([&] { result.mul_(1); });
  }
  attempt([&] {
    std::optional<torch::autograd::DetectAnomalyGuard> anomaly;
    if (around == Around::kAnomaly) anomaly.emplace(/*check_nan=*/false);
    back(around == Around::kTwiceKept || around == Around::kCreateGraph);
  });
  tell();
  if (around == Around::kTwiceKept || around == Around::kTwice) {
    attempt([&] { back(false); });
    tell();
  }
  if (other.defined()) attempt([&] { other.backward(); });
  return text.str();
}

}  // namespace overdrive::test
