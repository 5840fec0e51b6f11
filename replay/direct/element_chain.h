// The elementwise operators of one parameter's update: noted first, run afterwards, in order. Each is
// LibTorch's own kernel, so its rounding is that of the operator. Over contiguous memory they run in blocks
// that stay in the first-level cache, without the dispatcher, and results in between have memory of the thread;
// elsewhere they are the operators. On the stack of one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace overdrive::replay {

class ElementChain {
 public:
  // A tensor of the chain.
  using Value = int;

  // A tensor that the caller keeps until run() is done.
  Value of(const at::Tensor& tensor);
  // Room for a result in between. Its tensor is made when an operator writes it first.
  Value room();

  // The first value is written, and may be the second one.
  void add(Value out, Value a, Value b, double weight) { note({Kind::kAdd, out, a, b, 0, weight}); }
  void add_number(Value out, Value a, double number) { note({Kind::kAddNumber, out, a, 0, 0, number}); }
  void multiply(Value out, Value a, Value b) { note({Kind::kMultiply, out, a, b, 0, 0}); }
  void multiply_number(Value out, Value a, double number) {
    note({Kind::kMultiplyNumber, out, a, 0, 0, number});
  }
  void divide_number(Value out, Value a, double number) { note({Kind::kDivideNumber, out, a, 0, 0, number}); }
  void lerp(Value out, Value end, double weight) { note({Kind::kLerp, out, out, end, 0, weight}); }
  void addcmul(Value out, Value b, Value c, double weight) { note({Kind::kAddcmul, out, out, b, c, weight}); }
  void addcdiv(Value out, Value b, Value c, double weight) { note({Kind::kAddcdiv, out, out, b, c, weight}); }
  void maximum(Value out, Value a, Value b) { note({Kind::kMaximum, out, a, b, 0, 0}); }
  void sqrt(Value out, Value a) { note({Kind::kSqrt, out, a, 0, 0, 0}); }
  void reciprocal(Value out, Value a) { note({Kind::kReciprocal, out, a, 0, 0, 0}); }
  void abs(Value out, Value a) { note({Kind::kAbs, out, a, 0, 0, 0}); }

  // Runs what was noted, and forgets it.
  void run();
  // The same, by LibTorch's operators: what run() does wherever the memory is not contiguous.
  void run_operators();

 private:
  enum class Kind : uint8_t {
    kAdd,
    kAddNumber,
    kMultiply,
    kMultiplyNumber,
    kDivideNumber,
    kLerp,
    kAddcmul,
    kAddcdiv,
    kMaximum,
    kSqrt,
    kReciprocal,
    kAbs
  };
  struct Operation {
    Kind kind;
    Value out, a, b, c;
    double number;
  };
  struct Kernels;
  struct Iterators;
  static constexpr int kMostValues = 12, kMostOperations = 24, kMostRooms = 3;

  void note(const Operation& operation);
  bool fits() const;
  template <typename T>
  void run_blocks();
  // `bytes` of each tensor, and the share of each operator in fetching the `next` ones.
  void run_block(Iterators& iterators, const std::array<char*, kMostValues>& at, int64_t bytes,
                 int64_t next) const;
  void run_operator(const Operation& operation);
  void forget();

  // Null: a room.
  std::array<const at::Tensor*, kMostValues> tensors_{};
  std::array<Operation, kMostOperations> operations_;
  // Of rooms, by their values, while operators run.
  std::array<at::Tensor, kMostValues> made_;
  int values_ = 0, count_ = 0, rooms_ = 0;
};

}  // namespace overdrive::replay
