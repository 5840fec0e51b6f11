// The library as Python sees it: classes in torch.classes.overdrive, registered with LibTorch and without
// CPython's ABI. Owned by the process from overdrive_python_bindings() on. Any thread calls the functions; one
// thread at a time uses an object, unless its class says otherwise. Leaves exceptions to LibTorch, which makes
// Python's of them.
//
// Note [Statics in the bindings]: every function is a static one of a class. LibTorch calls it without the
// dispatcher, so that no mode, no profiler and no recording sees the call, and without the GIL. With an object
// a static function takes 0.6 us, a method that is bound to its object 1.4 us, and an operator 9.5 us, because
// the dispatcher's schema compares the classes by their text. A function of Python that C++ calls has no such
// form: it crosses as the address of a C function, by at_address(). So do the numbers of a call (captures.h).
// Values that a function of Python read are compared under the GIL by a C function of its own (values.cpp). A
// call that is like the last one is a builtin function of Python (calls.h).
#pragma once

#include <torch/custom_class.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

namespace overdrive::python {

// An object of C++ that Python holds.
template <typename T>
class Held : public torch::CustomClassHolder {
 public:
  explicit Held(std::unique_ptr<T> held) : held_(std::move(held)) {}

  T& operator*() const {
    TORCH_CHECK(held_, "it has ended.");
    return *held_;
  }
  T* operator->() const { return &**this; }
  // Hands it out, to be destroyed on this thread and without the GIL.
  std::unique_ptr<T> take() {
    TORCH_CHECK(held_, "it has ended.");
    return std::move(held_);
  }

 private:
  std::unique_ptr<T> held_;
};

template <typename T>
using HeldPtr = c10::intrusive_ptr<Held<T>>;

// Holds what `make` returns.
template <typename T, typename Make>
HeldPtr<T> hold(Make&& make) {
  return c10::make_intrusive<Held<T>>(std::unique_ptr<T>(new T(make())));
}

// A C function that ctypes made of one of Python's, or memory of ctypes. Python keeps it alive.
template <typename T>
T* at_address(int64_t address) {
  TORCH_CHECK(address != 0, "a function is missing.");
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Words for the values of an option.
template <typename T>
using Words = std::initializer_list<std::pair<const char*, T>>;

// The value that a word stands for.
template <typename T>
T one_of(const char* function, const char* option, const std::string& word, const Words<T>& words) {
  const auto* const found =
      std::find_if(words.begin(), words.end(), [&](const auto& known) { return word == known.first; });
  std::string all;
  size_t left = words.size();
  for (const auto& known : words) {
    --left;
    all += std::string("\"") + known.first + (left == 0 ? "\"" : left == 1 ? "\" and " : "\", ");
  }
  TORCH_CHECK(found != words.end(), function, "() was given ", option, " = \"", word, "\"; it takes ", all,
              ".");
  return found->second;
}

void add_calls(torch::Library& library);
void add_captures(torch::Library& library);
void add_engine(torch::Library& library);
void add_hooks(torch::Library& library);
void add_inspect(torch::Library& library);
void add_step_files(torch::Library& library);

}  // namespace overdrive::python
