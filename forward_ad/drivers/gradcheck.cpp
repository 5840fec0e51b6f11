#include "forward_ad/drivers/gradcheck.h"

#include "forward_ad/drivers/reverse.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

namespace overdrive::forward_ad::detail {
namespace {
// Derivatives are a table over real numbers: of each element of all results, a row, with regard to each element
// of all inputs that require grad, a column. A complex element counts as two.
at::Tensor parts_of(const at::Tensor& tensor) {
  at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  if (plain.is_complex()) plain = at::view_as_real(plain);
  return plain.to(at::kCPU, at::kDouble).reshape({-1});
}

// A tensor like this one, of zeros with a one at a part.
at::Tensor unit_like(const at::Tensor& like, int64_t part) {
  at::Tensor unit = at::zeros(like.sizes(), like.options());
  (unit.is_complex() ? at::view_as_real(unit) : unit).view({-1})[part].fill_(1);
  return unit;
}

int64_t count_of(const at::Tensor& tensor) { return tensor.numel() * (tensor.is_complex() ? 2 : 1); }

class Check {
 public:
  Check(const char* name, const Function& f, const Tensors& inputs, const GradcheckOptions& options)
      : name_(name), f_(f), inputs_(inputs), options_(options) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_differentiable(inputs[i]) && inputs[i].requires_grad()) checked_.push_back(i);
    }
  }

  // The text of the first failure, or "".
  std::string run() {
    const c10::AutoGradMode enabled(true);
    outputs_ = differentiable(f_(inputs_));
    if (outputs_.empty()) return "the function returns nothing that can have a gradient.";
    const Tensors again = differentiable(f_(inputs_));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (again.size() != outputs_.size() || !at::equal(parts_of(outputs_[i]), parts_of(again[i])))
        return "the function gives other results when it is called again. It must be a function of its inputs: "
               "seed random numbers inside of it.";
    }
    const at::Tensor numeric = by_differences();
    if (options_.check_backward_ad) {
      const at::Tensor backward = by_backwards();
      const at::Tensor repeated = by_backwards();
      if (backward.numel() > 0 && !((backward - repeated).abs().max().item<double>() <= options_.nondet_tol))
        return worst("two backwards through one graph", backward, repeated, "the first", "the second");
      if (!agree(backward, numeric)) return worst("reverse mode", backward, numeric, "analytic", "numeric");
    }
    if (options_.check_forward_ad) {
      const at::Tensor forward = by_tangents();
      if (!agree(forward, numeric)) return worst("forward mode", forward, numeric, "analytic", "numeric");
    }
    return "";
  }

 private:
  Tensors differentiable(Output&& output) const {
    Tensors found;
    for (at::Tensor& value : output.values) {
      TORCH_CHECK(value.defined(), name_,
                  ": a result of the function is undefined. Return a tensor in its place.");
      if (is_differentiable(value)) found.push_back(std::move(value));
    }
    return found;
  }

  at::Tensor flat(const Tensors& tensors) const {
    Tensors parts;
    for (const at::Tensor& tensor : tensors) parts.push_back(parts_of(tensor));
    return at::cat(parts);
  }

  // The function with one part of an input moved.
  at::Tensor moved(size_t input, int64_t part, double step) const {
    Tensors inputs = inputs_;
    at::Tensor copy = at::empty(inputs[input].sizes(), inputs[input].options());
    {
      const c10::NoGradGuard no_grad;
      copy.copy_(inputs[input]);
      (copy.is_complex() ? at::view_as_real(copy) : copy).view({-1})[part].add_(step);
    }
    inputs[input] = copy.requires_grad_();
    return flat(differentiable(f_(inputs)));
  }

  at::Tensor by_differences() const {
    Tensors columns;
    for (const size_t input : checked_) {
      for (int64_t part = 0; part < count_of(inputs_[input]); ++part) {
        columns.push_back((moved(input, part, options_.eps) - moved(input, part, -options_.eps)) /
                          (2 * options_.eps));
      }
    }
    return table(columns, 1);
  }

  at::Tensor by_backwards() const {
    Tensors leaves, rows;
    for (const size_t input : checked_) leaves.push_back(inputs_[input]);
    for (const at::Tensor& output : outputs_) {
      for (int64_t part = 0; part < count_of(output); ++part) {
        Tensors gradients(leaves.size());
        if (output.requires_grad()) {
          gradients = torch::autograd::grad({output}, leaves, {unit_like(output, part)}, /*retain_graph=*/true,
                                            /*create_graph=*/false, /*allow_unused=*/true);
        }
        for (size_t i = 0; i < leaves.size(); ++i) {
          if (!gradients[i].defined()) gradients[i] = at::zeros(leaves[i].sizes(), leaves[i].options());
        }
        rows.push_back(flat(gradients));
      }
    }
    return table(rows, 0);
  }

  at::Tensor by_tangents() const {
    Tensors columns;
    for (const size_t input : checked_) {
      for (int64_t part = 0; part < count_of(inputs_[input]); ++part) {
        Tensors tangents(inputs_.size());
        tangents[input] = unit_like(inputs_[input], part);
        Jvp r = jvp(f_, inputs_, tangents);
        Tensors slopes;
        for (size_t i = 0; i < r.tangents.size(); ++i) {
          if (is_differentiable(r.output.values[i])) slopes.push_back(std::move(r.tangents[i]));
        }
        columns.push_back(flat(slopes));
      }
    }
    return table(columns, 1);
  }

  static at::Tensor table(const Tensors& lines, int64_t dim) {
    return lines.empty() ? at::empty({0, 0}, at::kDouble) : at::stack(lines, dim);
  }

  // How far the table is off, 1 being the limit; NaN against a number counts as infinite.
  at::Tensor excess(const at::Tensor& table, const at::Tensor& other) const {
    at::Tensor off = (table - other).abs() / (options_.atol + options_.rtol * other.abs());
    off = at::where(off.isnan(), at::full_like(off, INFINITY), off);
    return at::where(table == other, at::zeros_like(off), off);  // equal infinities
  }
  bool agree(const at::Tensor& table, const at::Tensor& other) const {
    return table.numel() == 0 || excess(table, other).max().item<double>() <= 1;
  }

  // "input 1 [0, 2], imaginary part", of part number `part` of all the tensors.
  static std::string place(const char* what, const Tensors& tensors, const std::vector<size_t>& numbers,
                           int64_t part) {
    size_t i = 0;
    while (part >= count_of(tensors[i])) part -= count_of(tensors[i++]);
    const bool complex = tensors[i].is_complex();
    int64_t element = complex ? part / 2 : part;
    std::vector<int64_t> index(static_cast<size_t>(tensors[i].dim()));
    for (size_t d = index.size(); d-- > 0; element /= tensors[i].size(static_cast<int64_t>(d)))
      index[d] = element % tensors[i].size(static_cast<int64_t>(d));
    return c10::str(what, " ", numbers[i], " ", at::IntArrayRef(index),
                    complex ? part % 2 == 0 ? ", real part" : ", imaginary part" : "");
  }

  std::string worst(const char* of, const at::Tensor& table, const at::Tensor& other, const char* name,
                    const char* other_name) const {
    const at::Tensor off = excess(table, other);
    const int64_t at_most = off.argmax().item<int64_t>(), columns = table.size(1);
    const int64_t row = at_most / columns, column = at_most % columns;
    Tensors inputs;
    for (const size_t input : checked_) inputs.push_back(inputs_[input]);
    std::vector<size_t> in_order(outputs_.size());
    for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = i;
    std::ostringstream text;
    text.precision(10);
    text << of
         << (std::string_view(name) == "analytic" ? " disagrees with the numeric derivative in "
                                                  : " disagree in ")
         << (off > 1).sum().item<int64_t>() << " of " << off.numel()
         << " elements. The worst is the derivative of " << place("result", outputs_, in_order, row)
         << " with regard to " << place("input", inputs, checked_, column) << ": " << name << " "
         << table[row][column].item<double>() << ", " << other_name << " " << other[row][column].item<double>()
         << " (allowed: atol " << options_.atol << " + rtol " << options_.rtol << " of the latter).";
    return text.str();
  }

  const char* const name_;
  const Function& f_;
  const Tensors& inputs_;
  const GradcheckOptions& options_;
  std::vector<size_t> checked_;
  Tensors outputs_;
};

void check_for(const char* name, const Tensors& inputs, const GradcheckOptions& options) {
  check_inputs(name, inputs);
  TORCH_CHECK(options.check_forward_ad || options.check_backward_ad, name,
              ": check_forward_ad and check_backward_ad are both false, so nothing would be checked.");
  TORCH_CHECK(options.eps > 0 && options.atol >= 0 && options.rtol >= 0 && options.nondet_tol >= 0, name,
              ": eps must be positive, and atol, rtol and nondet_tol must not be negative; they are ",
              options.eps, ", ", options.atol, ", ", options.rtol, " and ", options.nondet_tol, ".");
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    any = true;
    TORCH_CHECK(inputs[i].layout() == at::kStrided, name, ": input ", i, " has layout ", inputs[i].layout(),
                "; it must be dense. Make the sparse tensor inside of the function.");
    TORCH_CHECK(inputs[i].scalar_type() == at::kDouble || inputs[i].scalar_type() == at::kComplexDouble, name,
                ": input ", i, " has dtype ", inputs[i].dtype(),
                ", which has too few digits for difference quotients. Use at::kDouble or at::kComplexDouble.");
  }
  TORCH_CHECK(any, name,
              ": no input requires grad, so there is nothing to check. Call requires_grad_() on those ",
              "that the function is differentiated with regard to.");
}

bool passes(const char* name, const Function& f, const Tensors& inputs, const GradcheckOptions& options) {
  const std::string failure = Check(name, f, inputs, options).run();
  TORCH_CHECK(failure.empty() || !options.raise_exception, name, ": ", failure);
  return failure.empty();
}

}  // namespace

bool gradcheck(const Function& f, const Tensors& inputs, const GradcheckOptions& options) {
  check_for("gradcheck", inputs, options);
  return passes("gradcheck", f, inputs, options);
}

bool gradgradcheck(const Function& f, const Tensors& inputs, const Tensors& grad_outputs,
                   const GradcheckOptions& options) {
  check_for("gradgradcheck", inputs, options);
  const c10::AutoGradMode enabled(true);
  const auto recorded = [&f](const Tensors& at) {
    Tensors outputs;
    for (at::Tensor& value : f(at).values) {
      if (is_differentiable(value) && value.requires_grad()) outputs.push_back(std::move(value));
    }
    return outputs;
  };
  const Tensors outputs = recorded(inputs);
  TORCH_CHECK(!outputs.empty(),
              "gradgradcheck: no result of the function requires grad, so there is no gradient ",
              "to differentiate again.");
  TORCH_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(), "gradgradcheck: there are ",
              grad_outputs.size(), " grad_outputs for ", outputs.size(), " results that require grad.");
  Tensors all = inputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(grad_outputs.empty() ? at::randn_like(outputs[i]).detach().requires_grad_()
                                       : grad_outputs[i]);
  }
  const size_t count = inputs.size();
  const Function gradients = [&recorded, count](const Tensors& at) -> Output {
    const auto middle = at.begin() + static_cast<int64_t>(count);
    const Tensors given(at.begin(), middle), seeds(middle, at.end());
    Tensors leaves;
    for (const at::Tensor& input : given) {
      if (input.requires_grad()) leaves.push_back(input);
    }
    Tensors found = torch::autograd::grad(recorded(given), leaves, seeds, /*retain_graph=*/true,
                                          /*create_graph=*/true, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].defined()) found[i] = at::zeros_like(leaves[i]);
    }
    return {std::move(found), {}};
  };
  return passes("gradgradcheck", gradients, all, options);
}

}  // namespace overdrive::forward_ad::detail
