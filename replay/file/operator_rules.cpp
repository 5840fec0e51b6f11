#include "replay/file/operator_rules.h"

#include "engine/base/no_destructor.h"
#include "engine/operators/facts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace overdrive::replay {

namespace {

using Sizes = std::vector<int64_t>;

// One operator with its arguments by name.
class Call {
 public:
  Call(const Program& program, size_t op) : program_(program), index_(op), op_(program.operators[op]) {}

  const Program& program() const { return program_; }
  const Operator& op() const { return op_; }
  size_t index() const { return index_; }

  int argument(std::string_view name) const {
    const auto& arguments = op_.handle.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == name) return static_cast<int>(i);
    }
    return -1;
  }
  // Null where it is none, or undefined.
  const Value* tensor(std::string_view name) const {
    const int i = argument(name);
    return i < 0 || !op_.in[i].is_tensor() ? nullptr : value(op_.in[i].values[0]);
  }
  const Value* result(size_t i) const {
    return i >= op_.out.size() || !op_.out[i].is_tensor() ? nullptr : value(op_.out[i].values[0]);
  }
  // Null where the operator was given it: such a result is whatever lies there.
  const Value* new_result(size_t i) const { return i < op_.fresh.size() && op_.fresh[i] ? result(i) : nullptr; }
  const c10::IValue& constant(std::string_view name) const {
    static base::NoDestructor<c10::IValue> none;
    const int i = argument(name);
    return i < 0 ? *none : op_.in[i].constant;
  }
  Sizes numbers(std::string_view name) const {
    const c10::IValue& given = constant(name);
    return given.isIntList() ? given.toIntVector() : Sizes();
  }
  // A whole number, and `otherwise` where it is none.
  int64_t number(std::string_view name, int64_t otherwise = 0) const {
    const c10::IValue& given = constant(name);
    return given.isInt() ? given.toInt() : otherwise;
  }
  bool flag(std::string_view name) const { return constant(name).isBool() && constant(name).toBool(); }

 private:
  const Value* value(int index) const { return index < 0 ? nullptr : &program_.values[index]; }

  const Program& program_;
  const size_t index_;
  const Operator& op_;
};

Sizes sizes_of(const Value& value) { return {value.sizes.begin(), value.sizes.end()}; }
bool has_sizes(const Value* value, const Sizes& sizes) { return value && sizes_of(*value) == sizes; }
bool alike(const Value* a, const Value* b) { return a && b && a->sizes == b->sizes && a->type == b->type; }
int64_t numel_of(const Value& value) { return c10::multiply_integers(value.sizes); }

// An optional tensor of so many elements.
bool fits(const Value* value, int64_t elements) { return !value || numel_of(*value) == elements; }

// Whether the tensor is what an earlier operator was given or made, and nothing has changed it since.
bool unchanged_since(const Call& call, const Value& value, size_t earlier) {
  for (size_t i = earlier + 1; i < call.index(); ++i) {
    const Operator& op = call.program().operators[i];
    if (std::find(op.writes.begin(), op.writes.end(), value.memory) != op.writes.end()) return false;
    for (const Argument& out : op.out) {
      if (call.program().touches(out, value.memory)) return false;
    }
  }
  return true;
}

// The earlier operator of this name, among those that had or made this tensor, for which the action is true.
template <typename Fits>
bool any_earlier(const Call& call, std::string_view name, const Fits& fits) {
  for (size_t i = call.index(); i-- > 0;) {
    const std::string& each = call.program().operators[i].name;
    if (each.substr(0, each.find('.')) == name && fits(Call(call.program(), i), i)) return true;
  }
  return false;
}

bool same_value(const Value* a, const Value* b) {
  return a && b && a->memory == b->memory && a->offset == b->offset && a->sizes == b->sizes &&
         a->strides == b->strides && a->type == b->type;
}

// Rules return whether all is well.
using Rule = bool (*)(const Call&);

// "size" is what is allocated.
bool makes_size(const Call& call) { return has_sizes(call.result(0), call.numbers("size")); }
bool makes_input_sizes(const Call& call) { return has_sizes(call.result(0), call.numbers("input_sizes")); }

bool arange(const Call& call) {
  const auto number = [&](std::string_view name, double otherwise) {
    const c10::IValue& given = call.constant(name);
    return given.isInt() ? static_cast<double>(given.toInt()) : given.isDouble() ? given.toDouble() : otherwise;
  };
  const double length = (number("end", 0) - number("start", 0)) / number("step", 1);
  const Value* made = call.result(0);
  return made && made->sizes.size() == 1 && length >= 0 && length <= static_cast<double>(made->sizes[0]) + 1;
}

bool repeat(const Call& call) {
  const Value *self = call.tensor("self"), *made = call.result(0);
  const Sizes times = call.numbers("repeats");
  if (!self || !made || times.size() < self->sizes.size() || made->sizes.size() != times.size()) return false;
  for (size_t i = 0; i < times.size(); ++i) {
    const size_t added = times.size() - self->sizes.size();
    const int64_t size = i < added ? 1 : self->sizes[i - added];
    if (times[i] < 0 || times[i] > made->sizes[i] + 1 || size * times[i] != made->sizes[i]) return false;
  }
  return true;
}

bool padded(const Call& call) {
  const Value *self = call.tensor("self"), *made = call.result(0);
  const Sizes pad = call.numbers("pad");
  if (!self || !made || self->sizes.size() != made->sizes.size() || pad.size() % 2 != 0 ||
      pad.size() / 2 > self->sizes.size())
    return false;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t dim = self->sizes.size() - 1 - i;
    const int64_t most = std::max(self->sizes[dim], made->sizes[dim]);
    for (const int64_t side : {pad[2 * i], pad[2 * i + 1]}) {
      if (side > most || side < -most) return false;
    }
    if (self->sizes[dim] + pad[2 * i] + pad[2 * i + 1] != made->sizes[dim]) return false;
  }
  return true;
}

bool samples(const Call& call) {
  const Value* made = call.result(0);
  return made && !made->sizes.empty() && made->sizes.back() == call.number("num_samples");
}

bool one_element(const Call& call) {
  const Value* self = call.tensor("self");
  return self && numel_of(*self) == 1;
}

bool softmax_backward(const Call& call) { return alike(call.tensor("grad_output"), call.tensor("output")); }

// The forward throws at a class that does not exist.
bool nll_loss_backward(const Call& call) {
  const Value *self = call.tensor("self"), *target = call.tensor("target");
  return self && target && any_earlier(call, "aten::nll_loss_forward", [&](const Call& forward, size_t at) {
           return same_value(forward.tensor("target"), target) && forward.tensor("self") &&
                  forward.tensor("self")->sizes == self->sizes &&
                  forward.number("ignore_index") == call.number("ignore_index") &&
                  unchanged_since(call, *target, at);
         });
}

bool embedding_backward(const Call& call) {
  const Value *indices = call.tensor("indices"), *made = call.result(0), *gradient = call.tensor("grad_output");
  return indices && made && gradient && !call.flag("scale_grad_by_freq") && made->sizes.size() == 2 &&
         !gradient->sizes.empty() && made->sizes[0] == call.number("num_weights", -1) &&
         made->sizes[1] == gradient->sizes.back() &&
         numel_of(*gradient) == numel_of(*indices) * gradient->sizes.back();
}

// Sizes of a convolution's result; empty where there is none.
Sizes convolved(const Call& call, const Value& input, const Value& weight) {
  const size_t dims = input.sizes.size();
  const Sizes stride = call.numbers("stride"), padding = call.numbers("padding"),
              dilation = call.numbers("dilation"), more = call.numbers("output_padding");
  const int64_t groups = call.number("groups");
  if (dims < 3 || weight.sizes.size() != dims || groups < 1) return {};
  const auto at = [&](const Sizes& list, size_t i) { return list[list.size() == 1 ? 0 : i]; };
  for (const Sizes* list : {&stride, &padding, &dilation, &more}) {
    if (list->size() != dims - 2 && list->size() != 1) return {};
    for (const int64_t each : *list) {
      if (each < 0 || each > (int64_t{1} << 24)) return {};
    }
  }
  const bool transposed = call.flag("transposed");
  const int64_t in = weight.sizes[transposed ? 0 : 1], out = weight.sizes[transposed ? 1 : 0];
  if ((transposed ? in : in * groups) != input.sizes[1] || in < 1 || out < 1) return {};
  if (!transposed && out % groups != 0) return {};
  if (transposed && in % groups != 0) return {};
  Sizes result{input.sizes[0], transposed ? out * groups : out};
  for (size_t i = 2; i < dims; ++i) {
    const int64_t s = at(stride, i - 2), p = at(padding, i - 2), d = at(dilation, i - 2), size = input.sizes[i];
    const int64_t kernel = d * (weight.sizes[i] - 1) + 1;
    if (s < 1 || d < 1 || weight.sizes[i] < 1 || size < 1) return {};
    if (!transposed && size + 2 * p < kernel) return {};
    const int64_t made =
        transposed ? (size - 1) * s - 2 * p + kernel + at(more, i - 2) : (size + 2 * p - kernel) / s + 1;
    if (made < 1) return {};
    result.push_back(made);
  }
  return result;
}

bool convolution(const Call& call) {
  const Value *input = call.tensor("input"), *weight = call.tensor("weight"), *bias = call.tensor("bias");
  if (!input || !weight || input->type != weight->type || (bias && bias->type != input->type)) return false;
  const Sizes made = convolved(call, *input, *weight);
  return !made.empty() && has_sizes(call.result(0), made) && fits(bias, made[1]);
}

bool convolution_backward(const Call& call) {
  const Value *input = call.tensor("input"), *weight = call.tensor("weight"),
              *gradient = call.tensor("grad_output");
  if (!input || !weight || !gradient || input->type != weight->type || gradient->type != input->type)
    return false;
  const Sizes made = convolved(call, *input, *weight);
  const Sizes bias = call.numbers("bias_sizes");
  return !made.empty() && has_sizes(gradient, made) && (bias.empty() || bias == Sizes{made[1]});
}

// Tensors of one number for each channel.
bool by_channel(const Call& call, const Value& input, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Value* each = call.tensor(name);
    if (!fits(each, input.sizes[1]) || (each && (each->type != input.type || each->sizes.size() != 1)))
      return false;
  }
  return true;
}

bool batch_norm(const Call& call) {
  const Value* input = call.tensor("input");
  if (!input || input->sizes.size() < 2) return false;
  const bool has_statistics = call.tensor("running_mean") && call.tensor("running_var");
  return (call.flag("training") || has_statistics) &&
         by_channel(call, *input, {"weight", "bias", "running_mean", "running_var"});
}

bool batch_norm_backward(const Call& call) {
  const Value* input = call.tensor("input");
  if (!input || input->sizes.size() < 2 || !alike(input, call.tensor("grad_out"))) return false;
  if (!by_channel(call, *input, {"weight", "running_mean", "running_var"})) return false;
  if (call.flag("train"))
    return call.tensor("save_mean") && call.tensor("save_invstd") &&
           by_channel(call, *input, {"save_mean", "save_invstd"});
  return call.tensor("running_mean") && call.tensor("running_var");
}

bool layer_norm(const Call& call) {
  const Value* input = call.tensor("input");
  const Value *weight = call.tensor("weight"), *bias = call.tensor("bias");
  const Sizes shape = call.numbers("normalized_shape");
  if (!input || shape.empty() || shape.size() > input->sizes.size()) return false;
  const size_t rows = input->sizes.size() - shape.size();
  if (!std::equal(shape.begin(), shape.end(), input->sizes.begin() + static_cast<int64_t>(rows))) return false;
  for (const Value* each : {weight, bias}) {
    if (each && (!has_sizes(each, shape) || each->type != input->type)) return false;
  }
  if (call.op().name == "aten::native_layer_norm") return true;
  const Value *mean = call.tensor("mean"), *rstd = call.tensor("rstd");
  int64_t count = 1;
  for (size_t i = 0; i < rows; ++i) count *= input->sizes[i];
  return alike(input, call.tensor("grad_out")) && mean && rstd && numel_of(*mean) == count &&
         numel_of(*rstd) == count && mean->type == input->type && rstd->type == input->type;
}

bool adaptive_pool_backward(const Call& call) {
  const Value *self = call.tensor("self"), *gradient = call.tensor("grad_output");
  if (!self || !gradient || self->type != gradient->type || self->sizes.size() != gradient->sizes.size() ||
      self->sizes.size() < 3)
    return false;
  return std::equal(self->sizes.begin(), self->sizes.end() - 2, gradient->sizes.begin()) &&
         numel_of(*gradient) > 0;
}

// The places are those that the forward found.
bool max_pool_backward(const Call& call) {
  const Value *self = call.tensor("self"), *indices = call.tensor("indices"),
              *gradient = call.tensor("grad_output");
  if (!self || !indices || !gradient || gradient->type != self->type) return false;
  return any_earlier(call, "aten::max_pool2d_with_indices", [&](const Call& forward, size_t at) {
    const auto same = [&](std::string_view name) { return forward.numbers(name) == call.numbers(name); };
    return same_value(forward.new_result(1), indices) && unchanged_since(call, *indices, at) &&
           forward.tensor("self") && forward.tensor("self")->sizes == self->sizes &&
           gradient->sizes == indices->sizes && same("kernel_size") && same("stride") && same("padding") &&
           same("dilation") && forward.flag("ceil_mode") == call.flag("ceil_mode");
  });
}

bool attention(const Call& call) {
  const Value *query = call.tensor("query"), *key = call.tensor("key"), *value = call.tensor("value"),
              *mask = call.tensor("attn_mask");
  if (!query || !alike(key, value) || query->type != key->type || query->sizes.size() != 4 ||
      key->sizes.size() != 4)
    return false;
  const auto &q = query->sizes, &k = key->sizes;
  if (q[0] != k[0] || q[1] != k[1] || q[3] != k[3] || numel_of(*query) == 0 || numel_of(*key) == 0)
    return false;
  // The kernel reads rows of elements that lie side by side.
  for (const Value* each : {query, key, value}) {
    if (each->strides[3] != 1 && each->sizes[3] != 1) return false;
  }
  if (mask) {
    const auto& m = mask->sizes;
    const auto at = [&](size_t from_end) { return m[m.size() - 1 - from_end]; };
    if (mask->type != query->type || (m.size() != 2 && m.size() != 4)) return false;
    if ((at(0) != k[2] && at(0) != 1) || (at(1) != q[2] && at(1) != 1)) return false;
    if (m.size() == 4 && ((m[0] != q[0] && m[0] != 1) || (m[1] != q[1] && m[1] != 1))) return false;
  }
  if (call.op().name == "aten::_scaled_dot_product_flash_attention_for_cpu") return true;
  const Value *gradient = call.tensor("grad_out"), *out = call.tensor("out"), *sums = call.tensor("logsumexp");
  return alike(gradient, query) && alike(out, query) && sums && sums->sizes.size() == 3 &&
         sums->sizes[0] == q[0] && sums->sizes[1] == q[1] && sums->sizes[2] == q[2] &&
         sums->type == (query->type == at::kDouble ? at::kDouble : at::kFloat) &&
         (gradient->strides[3] == 1 || q[3] == 1) && (out->strides[3] == 1 || q[3] == 1);
}

// Rows of float without gaps: the kernels of oneDNN look at the pointer alone.
bool is_dense(const Value* value, const Sizes& sizes) {
  if (!has_sizes(value, sizes) || value->type != at::kFloat) return false;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    if (sizes[i] < 1 || (sizes[i] > 1 && value->strides[i] != stride)) return false;
  }
  return true;
}

struct RecurrentNames {
  std::array<const char*, 4> weights;
  const char* cell;
};
constexpr RecurrentNames kForward{{"weight0", "weight1", "weight2", "weight3"}, "cx_"};
constexpr RecurrentNames kBackward{{"weight1", "weight2", "weight3", "weight4"}, "cx_tmp"};

// One direction of one layer of an LSTM, which is mode 2. Without biases their places have something else.
bool recurrent_layer(const Call& call, const RecurrentNames& names) {
  constexpr int64_t kLstm = 2, kMostHidden = int64_t{1} << 24;
  const Value* input = call.tensor("input");
  const int64_t hidden = call.number("hidden_size");
  if (!input || input->sizes.size() != 3 || !is_dense(input, sizes_of(*input))) return false;
  if (call.number("mode") != kLstm || hidden < 1 || hidden > kMostHidden) return false;
  if (!call.constant("batch_sizes").isIntList() || !call.numbers("batch_sizes").empty()) return false;
  const Sizes state{input->sizes[1], hidden};
  const auto is_bias = [&](const char* name) { return is_dense(call.tensor(name), {4 * hidden}); };
  return is_dense(call.tensor(names.weights[0]), {4 * hidden, input->sizes[2]}) &&
         is_dense(call.tensor(names.weights[1]), {4 * hidden, hidden}) &&
         (!call.flag("has_biases") || (is_bias(names.weights[2]) && is_bias(names.weights[3]))) &&
         is_dense(call.tensor("hx_"), state) && is_dense(call.tensor(names.cell), state);
}

bool recurrent_forward(const Call& call) {
  const Value* input = call.tensor("input");
  return recurrent_layer(call, kForward) &&
         has_sizes(call.result(0), {input->sizes[0], input->sizes[1], call.number("hidden_size")});
}

// The workspace is that of the forward, which alone knows how large it is.
bool recurrent_backward(const Call& call) {
  if (!recurrent_layer(call, kBackward)) return false;
  const Value *input = call.tensor("input"), *workspace = call.tensor("workspace");
  const int64_t hidden = call.number("hidden_size");
  const Sizes state{input->sizes[1], hidden}, output{input->sizes[0], input->sizes[1], hidden};
  const auto is_gradient = [&](std::string_view name, const Sizes& sizes) {
    const Value* each = call.tensor(name);
    return !each || (has_sizes(each, sizes) && each->type == at::kFloat);
  };
  if (!is_dense(call.tensor("output"), output) || !is_dense(call.tensor("hy_"), state) ||
      !is_dense(call.tensor("cy_"), state) || !is_gradient("grad_output", output) ||
      !is_gradient("grad_hy", state) || !is_gradient("grad_cy", state))
    return false;
  return any_earlier(call, "aten::mkldnn_rnn_layer", [&](const Call& forward, size_t at) {
    const Value* given = forward.tensor("input");
    return same_value(forward.new_result(3), workspace) && unchanged_since(call, *workspace, at) &&
           forward.op().grad_mode && given && given->sizes == input->sizes &&
           forward.number("hidden_size") == hidden && forward.flag("reverse") == call.flag("reverse");
  });
}

// An update of Overdrive: lists of tensors that belong together, and numbers.
bool update(const Call& call) {
  const auto list = [&](std::string_view name) -> const Argument& { return call.op().in[call.argument(name)]; };
  const auto& values = call.program().values;
  const Argument& parameters = list("parameters");
  const bool adam = call.op().name == "overdrive::adam_";
  const Value* numbers = call.tensor("numbers");
  if (!numbers || numbers->type != at::kDouble || numbers->sizes.size() != 1 || numbers->strides[0] != 1)
    return false;
  const auto belongs = [&](std::string_view name, bool optional) {
    const Argument& others = list(name);
    if (optional && others.values.empty()) return true;
    if (others.values.size() != parameters.values.size()) return false;
    for (size_t i = 0; i < others.values.size(); ++i) {
      if (others.values[i] < 0 || parameters.values[i] < 0) return false;
      if (!alike(&values[others.values[i]], &values[parameters.values[i]])) return false;
    }
    return true;
  };
  const auto is_real = [&](int value) { return value >= 0 && c10::isFloatingType(values[value].type); };
  if (!std::all_of(parameters.values.begin(), parameters.values.end(), is_real)) return false;
  if (!adam) return numbers->sizes[0] == 5 && belongs("gradients", false) && belongs("buffers", true);
  const Argument& steps = list("steps");
  const auto is_count = [&](int value) {
    return value >= 0 && numel_of(values[value]) == 1 &&
           (values[value].type == at::kFloat || values[value].type == at::kDouble);
  };
  return numbers->sizes[0] == 6 && belongs("gradients", false) && belongs("averages", false) &&
         belongs("squares", false) && belongs("greatest", true) &&
         steps.values.size() == parameters.values.size() &&
         std::all_of(steps.values.begin(), steps.values.end(), is_count);
}

Rule rule_of(std::string_view name) {
  static base::NoDestructor<std::unordered_map<std::string_view, Rule>> rules(
      std::unordered_map<std::string_view, Rule>{
          {"full", makes_size},
          {"ones", makes_size},
          {"zeros", makes_size},
          {"new_full", makes_size},
          {"new_ones", makes_size},
          {"new_zeros", makes_size},
          {"rand", makes_size},
          {"randn", makes_size},
          {"randint", makes_size},
          {"select_backward", makes_input_sizes},
          {"slice_backward", makes_input_sizes},
          {"arange", arange},
          {"repeat", repeat},
          {"constant_pad_nd", padded},
          {"multinomial", samples},
          {"_local_scalar_dense", one_element},
          {"_softmax_backward_data", softmax_backward},
          {"_log_softmax_backward_data", softmax_backward},
          {"nll_loss_backward", nll_loss_backward},
          {"embedding_dense_backward", embedding_backward},
          {"convolution", convolution},
          {"convolution_backward", convolution_backward},
          {"native_batch_norm", batch_norm},
          {"native_batch_norm_backward", batch_norm_backward},
          {"native_layer_norm", layer_norm},
          {"native_layer_norm_backward", layer_norm},
          {"_adaptive_avg_pool2d_backward", adaptive_pool_backward},
          {"max_pool2d_with_indices_backward", max_pool_backward},
          {"_scaled_dot_product_flash_attention_for_cpu", attention},
          {"_scaled_dot_product_flash_attention_for_cpu_backward", attention},
          {"mkldnn_rnn_layer", recurrent_forward},
          {"mkldnn_rnn_layer_backward", recurrent_backward},
          {"overdrive::sgd_", update},
          {"overdrive::adam_", update}});
  const auto found = (*rules).find(name);
  return found == (*rules).end() ? nullptr : found->second;
}

// The processor stops a program that divides the least whole number by -1, and so may a tensor.
bool divides_integers(const Call& call) {
  if (engine::facts_of(call.op().name).throws != engine::Throws::kOnIntegers) return false;
  const Value* made = call.result(0);
  if (made && !c10::isIntegralType(made->type, true)) return false;
  return call.number("other", -1) < 1;
}

}  // namespace

std::string broken_rule(const Program& program, size_t op) {
  const Call call(program, op);
  if (divides_integers(call)) return "whole numbers are divided by others than a positive constant.";
  // normal() has forms with and without sizes.
  std::string_view name = call.op().name;
  if (name.starts_with("aten::normal") && call.argument("size") >= 0 && !makes_size(call))
    return "its arguments do not fit each other.";
  if (name.starts_with("aten::")) name.remove_prefix(6);
  const Rule rule = rule_of(name.substr(0, name.find('.')));
  return !rule || rule(call) ? "" : "its arguments do not fit each other.";
}

}  // namespace overdrive::replay
