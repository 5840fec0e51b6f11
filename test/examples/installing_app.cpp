// A program that installs Overdrive itself, for the tests of `compare --app`: by install(), by a scope, by the
// C function, or in a way that nobody can stand in front of.
#include "engine/c_api.h"
#include "engine/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>

#include <cstdio>
#include <optional>
#include <string>

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  std::optional<overdrive::ScopedInstall> scope;
  if (way == "install") overdrive::install();
  if (way == "scope") scope.emplace();
  if (way == "c") overdrive_install();
  if (way == "by_address") {
    void* library = dlopen(OVERDRIVE_SONAME, RTLD_NOW | RTLD_NOLOAD);
    void* install = dlsym(library, "_ZN9overdrive6engine7installERKNS0_7OptionsE");
    reinterpret_cast<void (*)(const overdrive::Options&)>(install)({});
  }
  const at::Tensor x = at::ones({3}).requires_grad_();
  x.sin().sum().backward();
  std::printf("%.9g\n", static_cast<double>(x.grad().data_ptr<float>()[0]));
}
