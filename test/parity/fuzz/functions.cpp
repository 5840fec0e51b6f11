#include "test/parity/fuzz/functions.h"

#include "test/parity/fuzz/op_row.h"

namespace overdrive::fuzz {
namespace {

#define CUSTOM(name, ...) ONE(name, 2, kFunction, __VA_ARGS__)

const std::vector<Op> kRows = {
    CUSTOM("Product", Product::apply(a, b, k)),
    CUSTOM("HalfUndefined", HalfUndefined::apply(a, b, k)),
    CUSTOM("SameTwice", SameTwice::apply(a, b, k)),
    CUSTOM("Views", Views::apply(a, b, k)),
    CUSTOM("Expanded", Expanded::apply(a, b, k)),
    CUSTOM("WrongType", WrongType::apply(a, b, k)),
    CUSTOM("WrongShape", WrongShape::apply(a, b, k)),
    CUSTOM("TooMany", TooMany::apply(a, b, k)),
    CUSTOM("TooFew", TooFew::apply(a, b, k)),
    CUSTOM("Sparse", Sparse::apply(a, b, k)),
    CUSTOM("Zeros", Zeros::apply(a, b, k)),
    CUSTOM("ChangesGradient", ChangesGradient::apply(a, b, k)),
    CUSTOM("Keeps", Keeps::apply(a, b, k)),
    CUSTOM("Checkpoint", Checkpoint::apply(a, b, k)),
    ONE("InPlace", 1, kFunction, InPlace::apply(a, k)),
    TWO("Pair", 1, kFunction, Pair::apply(a, k)),
    TWO("BarePair", 1, kFunction, BarePair::apply(a, k)),
    TWO("HalfPair", 1, kFunction, HalfPair::apply(a, k)),
    TWO("RawNode", 2, kFunction, raw_node(a, b, k, false)),
    TWO("RawNodeTied", 2, kFunction, raw_node(a, b, k, true)),
};

}  // namespace

const std::vector<Op>& function_rows() { return kRows; }

}  // namespace overdrive::fuzz
