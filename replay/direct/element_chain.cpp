#include "replay/direct/element_chain.h"

#include "engine/base/cache_lines.h"
#include "replay/direct/kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/reciprocal_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>

#include <c10/core/CPUAllocator.h>

#include <unordered_map>

#ifdef OVERDRIVE_DIRECT_KERNELS
#include <ATen/native/Lerp.h>
#endif

namespace overdrive::replay {

ElementChain::Value ElementChain::of(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(values_ < kMostValues, "A chain has more tensors than it has room for.");
  tensors_[values_] = &tensor;
  return values_++;
}

ElementChain::Value ElementChain::room() {
  TORCH_INTERNAL_ASSERT(values_ < kMostValues && rooms_ < kMostRooms, "A chain has too many results.");
  ++rooms_;
  tensors_[values_] = nullptr;
  return values_++;
}

void ElementChain::note(const Operation& operation) {
  TORCH_INTERNAL_ASSERT(count_ < kMostOperations, "A chain has more operators than it has room for.");
  operations_[count_++] = operation;
}

void ElementChain::forget() {
  for (at::Tensor& made : made_) made.reset();
  values_ = count_ = rooms_ = 0;
}

void ElementChain::run_operators() {
  struct Forgets {
    ElementChain& chain;
    ~Forgets() { chain.forget(); }
  } forgets{*this};
  for (int i = 0; i < values_; ++i) {
    if (tensors_[i]) made_[i] = *tensors_[i];
  }
  for (int i = 0; i < count_; ++i) run_operator(operations_[i]);
}

void ElementChain::run_operator(const Operation& operation) {
  const auto number = [&] { return at::native::wrapped_scalar_tensor(operation.number); };
  at::Tensor &out = made_[operation.out], &a = made_[operation.a];
  const at::Tensor &b = made_[operation.b], &c = made_[operation.c];
  const bool in_place = operation.out == operation.a;
  // A room is filled once; written again it is written in place.
  TORCH_INTERNAL_ASSERT(in_place || operation.kind == Kind::kMaximum || !out.defined());
  switch (operation.kind) {
    case Kind::kAdd:
      in_place ? (void)at::cpu::add_(out, b, operation.number)
               : (void)(out = at::cpu::add(a, b, operation.number));
      break;
    case Kind::kAddNumber:
      in_place ? (void)at::cpu::add_(out, number(), 1) : (void)(out = at::cpu::add(a, number(), 1));
      break;
    case Kind::kMultiply:
      in_place ? (void)at::cpu::mul_(out, b) : (void)(out = at::cpu::mul(a, b));
      break;
    case Kind::kMultiplyNumber:
      in_place ? (void)at::cpu::mul_(out, number()) : (void)(out = at::cpu::mul(a, number()));
      break;
    case Kind::kDivideNumber:
      in_place ? (void)at::cpu::div_(out, number()) : (void)(out = at::cpu::div(a, number()));
      break;
    case Kind::kLerp:
      at::cpu::lerp_(out, b, operation.number);
      break;
    case Kind::kAddcmul:
      at::cpu::addcmul_(out, b, c, operation.number);
      break;
    case Kind::kAddcdiv:
      at::cpu::addcdiv_(out, b, c, operation.number);
      break;
    case Kind::kMaximum:
      at::cpu::maximum_out(out, a, b);
      break;
    case Kind::kSqrt:
      in_place ? (void)at::cpu::sqrt_(out) : (void)(out = at::cpu::sqrt(a));
      break;
    case Kind::kReciprocal:
      in_place ? (void)at::cpu::reciprocal_(out) : (void)(out = at::cpu::reciprocal(a));
      break;
    case Kind::kAbs:
      out = at::detail::empty_cpu({0}, a.options());
      at::cpu::abs_out(out, a);
      break;
  }
}

#ifdef OVERDRIVE_DIRECT_KERNELS

namespace {

// Of a tensor, in bytes: so many tensors of an update stay in a first-level cache of 32 KiB. A multiple of two
// of the widest vectors, so that an element is in the same loop of the kernel as in the whole.
constexpr int64_t kBlock = 4096;
// Of lengths that a thread keeps iterators for.
constexpr size_t kMostLengths = 128;

}  // namespace

struct ElementChain::Kernels {
  using Plain = void (*)(at::TensorIteratorBase&);
  using WithNumber = void (*)(at::TensorIteratorBase&, const c10::Scalar&);
  WithNumber add = chosen(at::native::add_stub);
  Plain multiply = chosen(at::native::mul_stub);
  Plain divide = chosen(at::native::div_true_stub);
  WithNumber lerp = chosen(at::native::lerp_kernel_scalar_weight);
  WithNumber addcmul = chosen(at::native::addcmul_stub);
  WithNumber addcdiv = chosen(at::native::addcdiv_stub);
  Plain maximum = chosen(at::native::maximum_stub);
  Plain sqrt = chosen(at::native::sqrt_stub);
  Plain reciprocal = chosen(at::native::reciprocal_stub);
  Plain abs = chosen(at::native::abs_stub);
};

// Iterators over so many elements of a type, at addresses that each use gives.
struct ElementChain::Iterators {
  Iterators(at::ScalarType type, int64_t length) {
    // Memory that is never touched.
    const auto operand = [&](bool is_number) {
      at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(c10::Storage::use_byte_size_t(), length * c10::elementSize(type),
                       at::DataPtr(nullptr, at::kCPU), nullptr, false),
          c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
      auto* impl = tensor.unsafeGetTensorImpl();
      is_number ? impl->set_sizes_contiguous({}) : impl->set_sizes_contiguous({length});
      if (is_number) impl->set_wrapped_number(true);
      return tensor;
    };
    const auto over = [&](std::initializer_list<bool> inputs) {
      at::TensorIteratorConfig config;
      config.set_check_mem_overlap(false).add_owned_output(operand(false));
      for (const bool is_number : inputs) config.add_owned_const_input(operand(is_number));
      return config.build();
    };
    unary = over({false});
    binary = over({false, false});
    with_number = over({false, true});
    ternary = over({false, false, false});
  }
  at::TensorIterator unary, binary, with_number, ternary;

  static Iterators& of(at::ScalarType type, int64_t length) {
    thread_local std::unordered_map<int64_t, Iterators> known;
    const int64_t key = length * 2 + (type == at::kDouble ? 1 : 0);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    if (known.size() >= kMostLengths) known.clear();
    return known.try_emplace(key, type, length).first->second;
  }
};

// Whether the kernels over plain memory do what the operators do.
bool ElementChain::fits() const {
  const at::Tensor& first = *tensors_[0];
  const auto type = first.scalar_type();
  if ((type != at::kFloat && type != at::kDouble) || first.numel() == 0) return false;
  const auto bytes = static_cast<uintptr_t>(first.nbytes());
  std::array<uintptr_t, kMostValues> begins;
  int count = 0;
  for (int i = 0; i < values_; ++i) {
    if (!tensors_[i]) continue;
    const at::Tensor& tensor = *tensors_[i];
    if (tensor.scalar_type() != type || !tensor.is_contiguous() || tensor.sizes() != first.sizes())
      return false;
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    // Tensors that overlap are the operators' to refuse.
    for (int k = 0; k < count; ++k) {
      if (begin < begins[k] + bytes && begins[k] < begin + bytes) return false;
    }
    begins[count++] = begin;
  }
  return true;
}

void ElementChain::run() {
  if (!fits()) return run_operators();
  tensors_[0]->scalar_type() == at::kFloat ? run_blocks<float>() : run_blocks<double>();
  forget();
}

template <typename T>
void ElementChain::run_blocks() {
  const int64_t size = tensors_[0]->numel();
  // Where a kernel divides its elements among threads, the threads' borders are in the bits.
  const bool whole = size >= at::internal::GRAIN_SIZE && at::get_num_threads() > 1;
  const int64_t block = whole ? size : std::min(size, kBlock / static_cast<int64_t>(sizeof(T)));
  alignas(64) thread_local std::array<std::array<char, kBlock>, kMostRooms> rooms;
  at::DataPtr large;
  const auto room_bytes = static_cast<size_t>(block) * sizeof(T) + 64;
  if (whole && rooms_ > 0) large = c10::GetCPUAllocator()->allocate(room_bytes * rooms_);
  std::array<char*, kMostValues> at{};
  // Before the addresses that are only read: memory of a lazy copy moves when it is written.
  for (int i = 0; i < count_; ++i) {
    const Value out = operations_[i].out;
    if (tensors_[out]) at[out] = static_cast<char*>(tensors_[out]->mutable_data_ptr());
  }
  for (int i = 0, room = 0; i < values_; ++i) {
    if (at[i]) continue;
    at[i] = tensors_[i] ? static_cast<char*>(const_cast<void*>(tensors_[i]->const_data_ptr()))
            : whole     ? static_cast<char*>(large.get()) + room_bytes / 64 * 64 * room++
                        : rooms[room++].data();
  }
  for (int64_t begin = 0; begin < size; begin += block) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    const int64_t length = std::min(block, size - begin);
    run_block(Iterators::of(c10::CppTypeToScalarType<T>::value, length), at, length * kBytes,
              std::min(block, size - begin - length) * kBytes);
    for (int i = 0; i < values_; ++i) {
      if (tensors_[i]) at[i] += length * kBytes;
    }
  }
}

// A block is too short for the processor to see where a tensor goes on, so the next one is asked for here, a
// part before each operator: in one go it would have to wait.
void ElementChain::run_block(Iterators& iterators, const std::array<char*, kMostValues>& at, int64_t bytes,
                             int64_t next) const {
  static const Kernels kernels;
  const bool is_float = tensors_[0]->scalar_type() == at::kFloat;
  for (int i = 0; i < count_; ++i) {
    const Operation& op = operations_[i];
    for (int value = 0; value < values_; ++value) {
      if (!tensors_[value]) continue;
      base::fetch_lines(at[value] + bytes + next * i / count_, next * (i + 1) / count_ - next * i / count_);
    }
    char *const out = at[op.out], *const a = at[op.a];
    const auto unary = [&](Kernels::Plain kernel) {
      iterators.unary.unsafe_replace_operand(0, out);
      iterators.unary.unsafe_replace_operand(1, a);
      kernel(iterators.unary);
    };
    const auto binary = [&]() -> at::TensorIterator& {
      iterators.binary.unsafe_replace_operand(0, out);
      iterators.binary.unsafe_replace_operand(1, a);
      iterators.binary.unsafe_replace_operand(2, at[op.b]);
      return iterators.binary;
    };
    // Rounded to the type as the operator rounds it.
    double number = op.number;
    auto short_number = static_cast<float>(op.number);
    const auto with_number = [&]() -> at::TensorIterator& {
      iterators.with_number.unsafe_replace_operand(0, out);
      iterators.with_number.unsafe_replace_operand(1, a);
      iterators.with_number.unsafe_replace_operand(2, is_float ? static_cast<void*>(&short_number) : &number);
      return iterators.with_number;
    };
    const auto ternary = [&](Kernels::WithNumber kernel) {
      iterators.ternary.unsafe_replace_operand(0, out);
      iterators.ternary.unsafe_replace_operand(1, a);
      iterators.ternary.unsafe_replace_operand(2, at[op.b]);
      iterators.ternary.unsafe_replace_operand(3, at[op.c]);
      kernel(iterators.ternary, op.number);
    };
    switch (op.kind) {
      case Kind::kAdd:
        kernels.add(binary(), op.number);
        break;
      case Kind::kAddNumber:
        kernels.add(with_number(), 1);
        break;
      case Kind::kMultiply:
        kernels.multiply(binary());
        break;
      case Kind::kMultiplyNumber:
        kernels.multiply(with_number());
        break;
      case Kind::kDivideNumber:
        kernels.divide(with_number());
        break;
      case Kind::kLerp:
        kernels.lerp(binary(), op.number);
        break;
      case Kind::kAddcmul:
        ternary(kernels.addcmul);
        break;
      case Kind::kAddcdiv:
        ternary(kernels.addcdiv);
        break;
      case Kind::kMaximum:
        kernels.maximum(binary());
        break;
      case Kind::kSqrt:
        unary(kernels.sqrt);
        break;
      case Kind::kReciprocal:
        unary(kernels.reciprocal);
        break;
      case Kind::kAbs:
        unary(kernels.abs);
        break;
    }
  }
}

#else

void ElementChain::run() { run_operators(); }

#endif

}  // namespace overdrive::replay
