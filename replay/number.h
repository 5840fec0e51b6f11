// A number that is an argument of a captured function and a value of its program, as a learning rate is:
// overdrive::capture([&](at::Tensor x, overdrive::Number beta) ...). Computes as a double does and, while the
// function runs, notes how. A value; used on the thread of the call. Does not know where LibTorch puts it.
#pragma once

#include "engine/base/export.h"

#include <c10/core/Scalar.h>

#include <compare>
#include <cstdint>
#include <memory>

namespace overdrive {

namespace replay {
class NumberTape;
class NumberArguments;
enum class NumberOp : uint8_t;
}  // namespace replay

class OVERDRIVE_API Number {  // A double whose way through a captured function is known.
 public:
  Number(double value);  // A constant.
  ~Number();
  Number(const Number&);
  Number& operator=(const Number&);

  // As operators of LibTorch take it: x * n, p.add_(g, -n), torch::lerp(a, b, n).
  operator at::Scalar() const;
  // Writes it where an option lies, in each call: rate.write_to(options.lr()) before optimizer.step().
  void write_to(double& option) const;
  // The number alone, as a size wants it. Makes a constant of the argument that it comes from: each value has a
  // recording of its own.
  double value() const;

  friend OVERDRIVE_API Number operator+(const Number& a, const Number& b);
  friend OVERDRIVE_API Number operator-(const Number& a, const Number& b);
  friend OVERDRIVE_API Number operator*(const Number& a, const Number& b);
  friend OVERDRIVE_API Number operator/(const Number& a, const Number& b);
  friend OVERDRIVE_API Number operator-(const Number& a);
  friend OVERDRIVE_API Number pow(const Number& a, const Number& b);
  friend OVERDRIVE_API Number exp(const Number& a);
  friend OVERDRIVE_API Number log(const Number& a);
  friend OVERDRIVE_API Number sqrt(const Number& a);
  friend Number min(const Number& a, const Number& b) { return b < a ? b : a; }
  friend Number max(const Number& a, const Number& b) { return a < b ? b : a; }

  // The answer belongs to the program: a call in which it is another one has another program.
  friend OVERDRIVE_API std::partial_ordering operator<=>(const Number& a, const Number& b);
  friend OVERDRIVE_API bool operator==(const Number& a, const Number& b);
  explicit operator bool() const { return *this != 0; }

 private:
  friend class replay::NumberArguments;
  Number(double value, std::shared_ptr<replay::NumberTape> tape, int place);
  static Number made(replay::NumberOp op, const Number& a, const Number& b);
  // The open tape of one of the two on this thread, or null.
  static std::shared_ptr<replay::NumberTape> tape_of(const Number& a, const Number& b);
  int place_on(replay::NumberTape& tape) const;

  double value_;
  // Of the run that it belongs to, and where it stands there; null: it is a constant.
  std::shared_ptr<replay::NumberTape> tape_;
  int place_ = -1;
};

}  // namespace overdrive
