#include "replay/record/constants.h"

#include <ATen/core/Generator.h>
#include <c10/core/Scalar.h>

#include <cstring>
#include <iomanip>
#include <sstream>

namespace overdrive::replay {

namespace {

template <typename T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

}  // namespace

bool comparable(const c10::IValue& value) {
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!comparable(element)) return false;
    }
    return true;
  }
  if (value.isTensor()) return !value.toTensor().defined();
  return value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isComplexDouble() ||
         value.isString() || value.isDevice() || value.isGenerator();
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!same_constant(x[i], y[i])) return false;
    }
    return true;
  }
  if (a.isTensor() && b.isTensor()) return true;
  if (a.isNone() && b.isNone()) return true;
  if (a.isBool() && b.isBool()) return a.toBool() == b.toBool();
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isDouble() && b.isDouble()) return same_bits(a.toDouble(), b.toDouble());
  if (a.isComplexDouble() && b.isComplexDouble()) return same_bits(a.toComplexDouble(), b.toComplexDouble());
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isDevice() && b.isDevice()) return a.toDevice() == b.toDevice();
  if (a.isGenerator() && b.isGenerator()) return a.toGenerator() == b.toGenerator();
  return false;
}

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << std::setprecision(17);
  if (value.isGenerator()) {
    text << "a generator";
  } else if (value.isTensor()) {
    text << "no tensor";
  } else if (value.isDouble()) {
    text << value.toDouble();
  } else if (value.isList()) {
    const char* comma = "";
    text << "[";
    for (const c10::IValue& element : value.toListRef()) text << std::exchange(comma, ", ") << text_of(element);
    text << "]";
  } else if (comparable(value)) {
    text << value;
  } else {
    text << "a value of kind " << value.tagKind();
  }
  return text.str();
}

}  // namespace overdrive::replay
