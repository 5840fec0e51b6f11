// Built by an outside project from an install tree that was moved: a backward on the installed engine. An entry
// of Overdrive's comes first, so that it has to bring all that it needs.
#include <overdrive/checkpoint/checkpoint.h>
#include <overdrive/engine/c_api.h>
#include <overdrive/engine/engine.h>

#include <ATen/ATen.h>

#include <iostream>

int main() {
  overdrive::ScopedInstall scope;
  if (!overdrive::installed() || !overdrive_installed()) return 1;
  const auto x = at::arange(3, at::kFloat).requires_grad_();
  (x * x).sum().backward();
  if (!at::equal(x.grad(), 2 * x.detach())) return 2;
  std::cout << "outside: a gradient from the installed library\n";
  return 0;
}
