// Repairs of derivatives that LibTorch gets wrong without an error: the faults, the rules that mend them, and
// trials that show whether the installed LibTorch still has a fault. The process registers the repairs once,
// with the other rules. Any thread. Leaves missing and slow formulas to the files in rules/.
//
// Note [Repairs]
// A trial computes derivatives of a small case. It runs twice, with LibTorch's formulas and with the repair.
// When both agree, LibTorch has mended the fault, and the repair is dropped; a trial that throws keeps it. The
// trials run once, for the first level of the process, on a thread of their own, so that no mode, layer or hook
// of the program is around. Rejected: version numbers, which know nothing of patched builds.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <functional>
#include <vector>

namespace overdrive::forward_ad::rules {

struct Repair {
  const char* fault;
  void (*add)(torch::Library& table);
  // Numbers that the fault changes. Null: no trial is possible, and the repair is always in use.
  std::vector<at::Tensor> (*trial)();
};

OVERDRIVE_API const std::vector<Repair>& repairs();

// Of each repair, whether LibTorch still has its fault. All of them are registered.
OVERDRIVE_API std::vector<bool> faults_found(const std::vector<Repair>& repairs);

// For trials, on plain tensors and level 0: the tangent of f at x; and with it the gradient of that tangent,
// and the tangent of the gradient.
using Formula = std::function<at::Tensor(const at::Tensor&)>;
std::vector<at::Tensor> first_order(const Formula& f, const at::Tensor& x);
OVERDRIVE_API std::vector<at::Tensor> second_order(const Formula& f, const at::Tensor& x);
// Numbers without chance: `first`, and 0.5 more for each next one.
OVERDRIVE_API at::Tensor row(double first, at::IntArrayRef sizes);

// Each appends the repairs of one file.
void list_distance_repairs(std::vector<Repair>& list);
void list_function_repairs(std::vector<Repair>& list);
void list_in_place_repairs(std::vector<Repair>& list);
void list_linear_algebra_repairs(std::vector<Repair>& list);
void list_norm_repairs(std::vector<Repair>& list);
void list_reduction_repairs(std::vector<Repair>& list);

}  // namespace overdrive::forward_ad::rules
