#include "examples/trainers/archive_file.h"
#include "examples/trainers/trainer.h"

#include <torch/script.h>

#include <charconv>
#include <filesystem>

namespace overdrive::trainers {

namespace {

int64_t parse_number(std::string_view text, const std::string& whole) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TORCH_CHECK(error == std::errc{} && end == text.data() + text.size() && number > 0,
              "an input's shape is written as "
              "8x3x32x32, or 16x128:65 for whole numbers below 65, not as \"",
              whole, "\".");
  return number;
}

torch::jit::Module load_module(const std::string& path, const torch::Device& device) {
  check_archive(path, "a TorchScript module");
  try {
    return torch::jit::load(path, device);
  } catch (const std::exception&) {
    TORCH_CHECK(false, path,
                " is not a TorchScript module (torch.jit.script(model).save(\"...\") writes one).");
  }
}

// Every floating-point tensor of a result, whatever it is wrapped in.
void collect(const c10::IValue& result, std::vector<torch::Tensor>& into) {
  if (result.isTensor()) {
    if (result.toTensor().requires_grad()) into.push_back(result.toTensor());
  } else if (result.isTuple()) {
    for (const auto& element : result.toTupleRef().elements()) collect(element, into);
  } else if (result.isList()) {
    for (const c10::IValue& element : result.toListRef()) collect(element, into);
  } else if (result.isGenericDict()) {
    for (const auto& entry : result.toGenericDict()) collect(entry.value(), into);
  }
}

// What an error of the interpreter is about: the line behind its traceback, or else the first.
std::string reason_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  const std::string text = ours != nullptr ? ours->msg() : error.what();
  constexpr std::string_view kLast = "RuntimeError: ";
  const size_t found = text.rfind(kLast);
  const size_t begin = found == std::string::npos ? 0 : found + kLast.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

// Asks every output to become small: a loss that any model has.
class TorchScript final : public Trainer {
 public:
  TorchScript(const Setup& setup, const std::string& path, const std::vector<InputShape>& inputs)
      : Trainer(setup), inputs_(inputs), module_(load_module(path, setup.device)) {
    module_.to(setup.device, setup.dtype);
    module_.train();
    for (const auto& parameter : module_.named_parameters()) {
      std::string name = parameter.name;  // "layer.weight"; a parameter of ours may not have a dot
      std::replace(name.begin(), name.end(), '.', '_');
      register_parameter(name, parameter.value, parameter.value.requires_grad());
    }
    std::vector<torch::Tensor> trained;
    for (const auto& parameter : parameters()) {
      if (parameter.requires_grad()) trained.push_back(parameter);
    }
    TORCH_CHECK(!trained.empty(), path, " has no parameter that wants a gradient.");
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::SGD>(trained, 1e-3));
  }

  double step(Meter& meter) override {
    // Dropout and its like draw from the default generator, which both copies share.
    const auto seed = torch::randint(1 << 30, {1}, generator(), torch::kInt64).item<int64_t>();
    torch::manual_seed(static_cast<uint64_t>(seed));
    std::vector<c10::IValue> arguments;
    for (const InputShape& input : inputs_) arguments.emplace_back(draw(input));
    return minimise(meter, *optimizer_, [&] { return loss_of(run(arguments)); }).item<double>();
  }

  double evaluate() override {
    double squares = 0;
    for (const auto& parameter : parameters())
      squares += parameter.detach().to(torch::kFloat64).square().sum().item<double>();
    return std::sqrt(squares);
  }

 private:
  torch::Tensor draw(const InputShape& input) {
    return place(input.below > 0 ? torch::randint(input.below, input.sizes, generator(), torch::kInt64)
                                 : torch::randn(input.sizes, generator()));
  }

  c10::IValue run(const std::vector<c10::IValue>& arguments) {
    try {
      return module_.forward(arguments);
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "the module cannot run on inputs of these shapes (--input): ", reason_of(error));
    }
  }

  static torch::Tensor loss_of(const c10::IValue& result) {
    std::vector<torch::Tensor> outputs;
    collect(result, outputs);
    TORCH_CHECK(!outputs.empty(), "the module returns no tensor that depends on a parameter.");
    torch::Tensor loss = outputs[0].square().mean();
    for (size_t i = 1; i < outputs.size(); ++i) loss = loss + outputs[i].square().mean();
    return loss;
  }

  const std::vector<InputShape> inputs_;
  torch::jit::Module module_;
  torch::optim::Optimizer* optimizer_;
};

}  // namespace

InputShape parse_input_shape(const std::string& text) {
  InputShape shape;
  const size_t colon = text.find(':');
  if (colon != std::string::npos) shape.below = parse_number(std::string_view(text).substr(colon + 1), text);
  std::string_view sizes = std::string_view(text).substr(0, colon);
  for (;;) {
    const size_t cross = sizes.find('x');
    shape.sizes.push_back(parse_number(sizes.substr(0, cross), text));
    if (cross == std::string_view::npos) return shape;
    sizes.remove_prefix(cross + 1);
  }
}

TrainerInfo torchscript(const std::string& path, const std::vector<InputShape>& inputs) {
  const std::string name = std::filesystem::path(path).filename().string();
  return {.name = name,
          .what = "TorchScript module",
          .shows = "your own model",
          .quality = "length of all parameters",
          .good = 0,
          .default_steps = 100,
          .make = [=](const Setup& setup) { return std::make_unique<TorchScript>(setup, path, inputs); },
          .not_captured = "an interpreter runs it"};
}

}  // namespace overdrive::trainers
