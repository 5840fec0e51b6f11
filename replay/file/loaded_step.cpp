#include "replay/file/loaded_step.h"

#include "replay/file/check_program.h"
#include "replay/file/settings.h"
#include "replay/file/stored_optimizer.h"
#include "replay/record/compare.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace overdrive::replay {

namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::array<const char*, 5> kSgdNumbers{"lr", "momentum", "dampening", "weight_decay", "nesterov"};
constexpr std::array<const char*, 6> kAdamNumbers{"lr", "beta1", "beta2", "eps", "weight_decay", "decoupled"};

// Options that switch operators on, when they are not 0.
bool is_switch(std::string_view name) {
  return name == "momentum" || name == "weight_decay" || name == "nesterov" || name == "decoupled";
}

void set_option(StoredOptimizer& optimizer, size_t group, size_t option, double value) {
  const auto operators = [&] {
    std::string names;
    for (const UpdateOperator& op : numbers_of_update(optimizer, static_cast<uint32_t>(group), 1))
      names += c10::str(op.name, op.has_number, " ");
    return names;
  };
  const std::string before = operators();
  const double old = std::exchange(optimizer.groups[group][option], value);
  if (operators() == before) return;
  optimizer.groups[group][option] = old;
  TORCH_CHECK(false, "The step was saved with ",
              names_of_options(static_cast<OptimizerKind>(optimizer.kind))[option], " = ", old, ", and ", value,
              " asks for other operators; save it with this option.");
}

std::string writer_and_reader(const StoredStep& step) {
  return c10::str("The file was written with LibTorch ", step.torch, ", ", step.capability, ", ", step.threads,
                  " threads; here it is LibTorch ", running_torch(), ", ", at::get_cpu_capability(), ", ",
                  at::get_num_threads(), " threads.");
}

void prove(LoadedProgram& program, const StoredStep& step, const std::string& function, bool accept) {
  const std::string text = program.prove();
  if (text.empty()) return;
  const std::string all =
      c10::str("function ", function, " does not give the bits of the step that was saved: ", text, ". ",
               writer_and_reader(step));
  TORCH_CHECK(accept, all, " LoadOptions::accept_other_bits takes them.");
  TORCH_WARN(all);
}

std::string signatures_of_inputs(const std::vector<at::Tensor>& inputs) {
  std::string text;
  for (const at::Tensor& input : inputs) {
    text += text.empty() ? "" : ", ";
    text +=
        input.defined() ? c10::str(at::toString(input.scalar_type()), input.sizes()) : "an undefined tensor";
  }
  return text.empty() ? "no inputs" : text;
}

at::Tensor as_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

LoadedStep::LoadedStep(StoredStep read, const LoadOptions& options)
    : stored((check_tables(read, options.most_memory), std::move(read))), tensors(stored) {
  TORCH_CHECK(stored.default_type == at::get_default_dtype_as_scalartype(),
              "the file was written with the default type ", at::toString(stored.default_type),
              "; set it before the file is loaded.");
  const std::string now = settings_now();
  TORCH_CHECK(stored.settings == now || options.accept_other_bits,
              "the file was written under other settings (", stored.settings, ") than there are now (", now,
              "). LoadOptions::accept_other_bits takes other bits.");
  const std::vector<c10::OperatorHandle> operators = operators_of(stored);
  // All are looked at before the first one runs.
  std::vector<Program> checked;
  for (const StoredFunction& function : stored.functions) {
    for (const StoredProgram& program : function.programs) {
      try {
        checked.push_back(checked_program(stored, program, operators, options.most_memory));
      } catch (const c10::Error& error) {
        TORCH_CHECK(false, "function ", function.name, ", ", error.msg());
      }
    }
  }
  check_calls(stored);
  if (const int unnamed = stored.version < 2 ? -1 : tensor_without_name(stored); unnamed >= 0)
    TORCH_CHECK(false, "a program uses elements of the memory of ", stored.tensors[unnamed].views.front().name,
                " that have no name.");
  size_t next = 0;
  for (const StoredFunction& function : stored.functions) {
    programs.emplace_back();
    for (const StoredProgram& program : function.programs)
      programs.back().push_back(
          std::make_unique<LoadedProgram>(stored, program, std::move(checked[next++]), tensors));
    for (const auto& program : programs.back()) {
      if (options.check) prove(*program, stored, function.name, options.accept_other_bits);
    }
  }
}

size_t LoadedStep::function_named(const std::string& name) const {
  for (size_t i = 0; i < stored.functions.size(); ++i) {
    if (stored.functions[i].name == name) return i;
  }
  std::string names;
  for (const StoredFunction& function : stored.functions) names += (names.empty() ? "" : ", ") + function.name;
  TORCH_CHECK(false, "The step has no function ", name, "; it has ", names, ".");
}

LoadedProgram& LoadedStep::program_for(size_t function, const std::vector<at::Tensor>& inputs) {
  for (const bool exactly : {true, false}) {
    for (const auto& program : programs[function]) {
      if (program->fits(inputs, exactly)) return *program;
    }
  }
  std::string known;
  for (const auto& program : programs[function]) {
    std::string signature;
    for (const StoredInput& input : program->stored().inputs) {
      signature += signature.empty() ? "" : ", ";
      signature += c10::str(at::toString(input.type), at::IntArrayRef(input.sizes));
      if (&input - program->stored().inputs.data() != input.same_as)
        signature += c10::str(" (input ", input.same_as, ")");
    }
    known += (known.empty() ? "" : "; ") + signature;
  }
  TORCH_CHECK(false, "The step was called with ", signatures_of_inputs(inputs), ", and function ",
              stored.functions[function].name, " has programs for: ", known, ".");
}

std::vector<at::Tensor> LoadedStep::call(size_t function, const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(!is_busy.exchange(true, std::memory_order_acquire),
              "A loaded step was called while another call of it was under way.");
  const std::shared_ptr<void> done(nullptr, [this](void*) { is_busy.store(false, std::memory_order_release); });
  LoadedProgram& program = program_for(function, inputs);
  check_fixed();
  return program.call(inputs);
}

void LoadedStep::check_fixed() const {
  for (size_t i = 0; i < stored.tensors.size(); ++i) {
    const StoredTensor& tensor = stored.tensors[i];
    if (!tensor.is_fixed || tensor.bytes == 0) continue;
    TORCH_CHECK(
        std::memcmp(tensors.storages[i].data(), tensor.value->data(), tensor.bytes) == 0,
        tensor.views.front().name,
        " was the same in all calls that were recorded, and the function may have read it through a pointer; "
        "a step file cannot tell. Change it before the step is saved, once.");
  }
}

Named LoadedStep::lasting() const {
  Named result;
  for (size_t i = 0; i < stored.tensors.size(); ++i) {
    for (size_t k = 0; k < stored.tensors[i].views.size(); ++k)
      result.emplace_back(stored.tensors[i].views[k].name, tensors.views[i][k]);
  }
  return result;
}

Named LoadedStep::named() const {
  Named result = lasting();
  std::set<std::string> seen;
  for (const auto& function : programs) {
    for (const auto& program : function) {
      for (const auto& left : program->left()) {
        if (seen.insert(left.first).second) result.push_back(left);
      }
    }
  }
  return result;
}

std::vector<LoadedStep::Number> LoadedStep::numbers() {
  std::vector<Number> result;
  for (size_t o = 0, group = 0; o < stored.optimizers.size(); ++o) {
    StoredOptimizer& optimizer = stored.optimizers[o];
    const auto& names = names_of_options(static_cast<OptimizerKind>(optimizer.kind));
    for (size_t g = 0; g < optimizer.groups.size(); ++g, ++group) {
      for (size_t n = 0; n < names.size(); ++n)
        result.push_back({c10::str(group, ".", names[n]), optimizer.groups[g][n],
                          [&optimizer, g, n](double value) { set_option(optimizer, g, n, value); }});
    }
  }
  // Of Python's optimizers they are a tensor for each group, which the update reads.
  size_t group = 0;
  std::set<uint32_t> seen;
  for (const auto& function : programs) {
    for (const auto& program : function) {
      for (const Operator& op : program->program().operators) {
        if (!op.name.starts_with("overdrive::")) continue;
        const Value& value = program->program().values[op.in.back().values[0]];
        const StoredMemory& memory = program->stored().memories[value.memory];
        if (memory.origin != Origin::kOutside || !seen.insert(memory.index).second) continue;
        const size_t count = op.name == "overdrive::sgd_" ? kSgdNumbers.size() : kAdamNumbers.size();
        const c10::Storage storage = tensors.storages[memory.index];
        for (size_t n = 0; n < count; ++n) {
          const char* name = op.name == "overdrive::sgd_" ? kSgdNumbers[n] : kAdamNumbers[n];
          double* place = static_cast<double*>(storage.mutable_data()) + value.offset + n;
          const auto set = [storage, place, name](double given) {
            TORCH_CHECK(!is_switch(name) || (*place == 0) == (given == 0), "The step was saved with ", name,
                        " = ", *place, ", and ", given, " asks for other operators; save it with this option.");
            *place = given;
          };
          result.push_back({c10::str(group, ".", name), *place, set});
        }
        ++group;
      }
    }
  }
  return result;
}

bool LoadedStep::uses_generators() const {
  return std::any_of(programs.begin(), programs.end(), [](const auto& function) {
    return std::any_of(function.begin(), function.end(),
                       [](const auto& program) { return draws(program->run()); });
  });
}

Named LoadedStep::state() const {
  Named result;
  for (const auto& [name, tensor] : lasting()) result.emplace_back(name, tensor.clone());
  for (size_t o = 0; o < stored.optimizers.size(); ++o) {
    const StoredOptimizer& optimizer = stored.optimizers[o];
    std::vector<int64_t> steps;
    for (const auto& parameter : optimizer.parameters) steps.push_back(parameter.steps);
    result.emplace_back(c10::str("optimizer.", o, ".steps"), at::tensor(steps, at::kLong));
    for (size_t g = 0; g < optimizer.groups.size(); ++g)
      result.emplace_back(c10::str("optimizer.", o, ".options.", g),
                          at::tensor(optimizer.groups[g], at::kDouble));
  }
  for (size_t i = 0; i < stored.generators.size() && uses_generators(); ++i)
    result.emplace_back(c10::str("generator.", i), as_tensor(state_text(stored.generators[i])));
  return result;
}

LoadedState LoadedStep::take_state(const Named& given) {
  const auto find = [&](const std::string& name) {
    return std::find_if(given.begin(), given.end(), [&](const auto& each) { return each.first == name; });
  };
  LoadedState outcome;
  std::set<std::string> known;
  std::vector<std::function<void()>> copies;
  const Named now = state();
  Named own = lasting();
  for (size_t i = 0; i < now.size(); ++i) {
    const auto& [name, tensor] = now[i];
    known.insert(name);
    const auto found = find(name);
    if (found == given.end()) {
      outcome.missing.push_back(name);
      continue;
    }
    const at::Tensor from = found->second;
    TORCH_CHECK(from.defined() && from.sizes() == tensor.sizes() && from.scalar_type() == tensor.scalar_type(),
                name, " has other sizes or another type in the file.");
    if (i < own.size()) copies.emplace_back([to = own[i].second, from]() mutable { to.copy_(from); });
  }
  for (const auto& [name, tensor] : given) {
    if (!known.contains(name)) outcome.unexpected.push_back(name);
  }
  // From here on nothing fails.
  const at::NoGradGuard no_grad;
  for (const auto& copy : copies) copy();
  for (size_t o = 0; o < stored.optimizers.size(); ++o) {
    StoredOptimizer& optimizer = stored.optimizers[o];
    if (const auto steps = find(c10::str("optimizer.", o, ".steps")); steps != given.end()) {
      const at::Tensor counts = steps->second.contiguous();
      for (size_t i = 0; i < optimizer.parameters.size(); ++i)
        optimizer.parameters[i].steps = std::max<int64_t>(0, counts.const_data_ptr<int64_t>()[i]);
    }
    for (size_t g = 0; g < optimizer.groups.size(); ++g) {
      const auto options = find(c10::str("optimizer.", o, ".options.", g));
      if (options == given.end()) continue;
      const at::Tensor numbers = options->second.contiguous();
      for (size_t n = 0; n < optimizer.groups[g].size(); ++n)
        set_option(optimizer, g, n, numbers.const_data_ptr<double>()[n]);
    }
  }
  for (size_t i = 0; i < stored.generators.size() && uses_generators(); ++i) {
    const auto found = find(c10::str("generator.", i));
    if (found == given.end()) continue;
    const at::Tensor bytes = found->second.contiguous();
    set_states({stored.generators[i]},
               {std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes())});
  }
  return outcome;
}

}  // namespace overdrive::replay
