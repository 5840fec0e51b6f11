// One small program around a row of the table, and all that it can see of its backward, as text. Runs on
// whichever engine is the default.
#pragma once

#include "test/engine/native_nodes/rows.h"

#include <string>

namespace overdrive::test {

// How the operands look.
enum class Operand { kLeaf, kFresh, kTransposed, kSliced, kExpanded, kRealPart, kHowMany };
// Which values they have.
enum class Values { kUsual, kOdd, kHowMany };
// What the backward begins with.
enum class Root { kOrdinary, kExpanded, kTransposed, kSliced, kOdd, kHowMany };
// How the row's result becomes the root.
enum class Wiring { kIsRoot, kAlone, kTwice, kSecond, kShared, kHowMany };
// What happens around the backward.
enum class Around {
  kOnce,
  kTwiceKept,         // retain_graph
  kTwice,             // "a second time"
  kChanged,           // a saved tensor was written to
  kHasGradient,       // leaves have a gradient already
  kHasTransposed,     // one of other strides
  kHasSparse,         // one of another layout
  kGradientIsHeld,    // and the program has it, and its memory
  kGradientWasSaved,  // by another graph, which goes back afterwards
  kGrad,              // grad() of the operands
  kInputs,            // backward(inputs=) of the first leaf
  kHook,              // on the result
  kAnomaly,
  kCreateGraph,
  kTangents,  // leaves have a tangent, so gradients have one
  kHowMany
};

struct NativeProgram {
  const NativeRow* row;
  at::ScalarType type = at::kFloat;
  at::ScalarType second_type = at::kFloat;  // of the operands but the first
  Operand operand = Operand::kLeaf;
  Values values = Values::kUsual;
  Root root = Root::kOrdinary;
  Wiring wiring = Wiring::kIsRoot;
  Around around = Around::kOnce;
  uint64_t seed = 0;

  std::string name() const;
  // What it sees, or "refused" when the forward is an error.
  std::string run() const;
};

}  // namespace overdrive::test
