#include "replay/file/stored_step.h"

#include "replay/file/bytes.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>

namespace overdrive::replay {

namespace {

constexpr std::string_view kMagic("\x89OVDSTP\n", 8);
// Magic, version, a zero, length of what follows, its digest.
constexpr size_t kHeaderBytes = 32;
// No step of a program has tensors of more dimensions, nor lists in lists in lists.
constexpr size_t kMostDimensions = 64, kMostNesting = 3;

enum class Tag : uint8_t {
  kNone,
  kFalse,
  kTrue,
  kInt,
  kDouble,
  kComplex,
  kString,
  kCpu,
  kGenerator,
  kUndefined,
  kList
};

at::ScalarType type_of(uint8_t number) {
  static constexpr std::array known{at::kByte,         at::kChar,          at::kShort, at::kInt,
                                    at::kLong,         at::kHalf,          at::kFloat, at::kDouble,
                                    at::kComplexFloat, at::kComplexDouble, at::kBool,  at::kBFloat16};
  const auto type = static_cast<at::ScalarType>(number);
  TORCH_CHECK(std::find(known.begin(), known.end(), type) != known.end(), "a tensor has an unknown type.");
  return type;
}

class Writing {
 public:
  explicit Writing(const StoredStep& step) : step_(step) {}

  template <typename T>
  void number(T& value) {
    out.number(value);
  }
  void flag(bool& value) { out.flag(value); }
  void text(std::string& value) { out.text(value); }
  void data(std::string_view& value) { out.data(value); }
  void type(at::ScalarType& value) { out.number(static_cast<uint8_t>(value)); }
  void origin(Origin& value) { out.number(static_cast<uint8_t>(value)); }
  template <typename List, typename Each>
  void list(List& items, size_t, const Each& each) {
    out.count(items.size());
    for (auto& item : items) each(item);
  }
  template <typename T, typename Each>
  void optional(std::optional<T>& value, const Each& each) {
    out.flag(value.has_value());
    if (value) each(*value);
  }
  void generator(at::Generator& value) {
    const auto found = std::find(step_.generators.begin(), step_.generators.end(), value);
    TORCH_CHECK(found != step_.generators.end(), "a generator is none of the step's.");
    out.number(static_cast<uint32_t>(found - step_.generators.begin()));
  }
  void kind(Argument::Kind& value) { out.number(static_cast<uint8_t>(value)); }
  bool has_version(uint32_t) const { return true; }
  void constant(c10::IValue& value, size_t nesting);

  ByteWriter out;

 private:
  const StoredStep& step_;
};

class Reading {
 public:
  Reading(const StoredStep& step, std::string_view bytes, uint32_t version)
      : in(bytes), step_(step), version_(version) {}

  template <typename T>
  void number(T& value) {
    value = in.number<T>();
  }
  void flag(bool& value) { value = in.flag(); }
  void text(std::string& value) { value = in.text(); }
  void data(std::string_view& value) { value = in.data(); }
  void type(at::ScalarType& value) { value = type_of(in.number<uint8_t>()); }
  void origin(Origin& value) {
    const auto number = in.number<uint8_t>();
    TORCH_CHECK(number <= static_cast<uint8_t>(Origin::kConstant), "memory comes from nowhere.");
    value = static_cast<Origin>(number);
  }
  // `least`: the bytes that an item takes at the least.
  template <typename List, typename Each>
  void list(List& items, size_t least, const Each& each) {
    const size_t size = in.count(least);
    items.clear();
    items.reserve(size);
    for (size_t i = 0; i < size; ++i) {
      items.emplace_back();
      each(items.back());
    }
  }
  template <typename T, typename Each>
  void optional(std::optional<T>& value, const Each& each) {
    value.reset();
    if (!in.flag()) return;
    value.emplace();
    each(*value);
  }
  void kind(Argument::Kind& value) {
    const auto number = in.number<uint8_t>();
    TORCH_CHECK(number <= static_cast<uint8_t>(Argument::Kind::kOptionalTensors), "an argument is of no kind.");
    value = static_cast<Argument::Kind>(number);
  }
  void constant(c10::IValue& value, size_t nesting);
  // Whether the file has what came with this version.
  bool has_version(uint32_t version) const { return version <= version_; }

  ByteReader in;

 private:
  const StoredStep& step_;
  const uint32_t version_;
};

void Writing::constant(c10::IValue& value, size_t nesting) {
  const auto tag = [&](Tag kind) { out.number(static_cast<uint8_t>(kind)); };
  TORCH_CHECK(nesting <= kMostNesting, "a list of an operator is nested too deeply for a step file.");
  if (value.isNone()) return tag(Tag::kNone);
  if (value.isBool()) return tag(value.toBool() ? Tag::kTrue : Tag::kFalse);
  if (value.isInt()) {
    tag(Tag::kInt);
    out.number(value.toInt());
  } else if (value.isDouble()) {
    tag(Tag::kDouble);
    out.number(value.toDouble());
  } else if (value.isComplexDouble()) {
    tag(Tag::kComplex);
    out.number(value.toComplexDouble().real());
    out.number(value.toComplexDouble().imag());
  } else if (value.isString()) {
    tag(Tag::kString);
    out.text(value.toStringRef());
  } else if (value.isDevice() && value.toDevice().is_cpu()) {
    tag(Tag::kCpu);
  } else if (value.isGenerator()) {
    tag(Tag::kGenerator);
    at::Generator given = value.toGenerator();
    generator(given);
  } else if (value.isTensor() && !value.toTensor().defined()) {
    tag(Tag::kUndefined);
  } else if (value.isList()) {
    tag(Tag::kList);
    const auto items = value.toListRef();
    out.count(items.size());
    for (c10::IValue item : items) constant(item, nesting + 1);
  } else {
    TORCH_CHECK(false, "an operator has an argument that a step file cannot hold: ", value.tagKind(), ".");
  }
}

void Reading::constant(c10::IValue& value, size_t nesting) {
  TORCH_CHECK(nesting <= kMostNesting, "a list of an operator is nested too deeply.");
  const auto tag = in.number<uint8_t>();
  switch (static_cast<Tag>(tag)) {
    case Tag::kNone:
      value = c10::IValue();
      return;
    case Tag::kFalse:
    case Tag::kTrue:
      value = static_cast<Tag>(tag) == Tag::kTrue;
      return;
    case Tag::kInt:
      value = in.number<int64_t>();
      return;
    case Tag::kDouble:
      value = in.number<double>();
      return;
    case Tag::kComplex: {
      const auto real = in.number<double>();
      value = c10::complex<double>(real, in.number<double>());
      return;
    }
    case Tag::kString:
      value = std::string(in.text());
      return;
    case Tag::kCpu:
      value = c10::Device(at::kCPU);
      return;
    case Tag::kGenerator: {
      const auto index = in.number<uint32_t>();
      TORCH_CHECK(index < step_.generators.size(), "a generator does not exist.");
      value = step_.generators[index];
      return;
    }
    case Tag::kUndefined:
      value = at::Tensor();
      return;
    case Tag::kList: {
      // Of no type yet: check_program.h gives it the argument's.
      c10::impl::GenericList list(c10::AnyType::get());
      const size_t size = in.count(1);
      for (size_t i = 0; i < size; ++i) {
        c10::IValue item;
        constant(item, nesting + 1);
        list.push_back(std::move(item));
      }
      value = std::move(list);
      return;
    }
  }
  TORCH_CHECK(false, "an argument is of no kind.");
}

// One function for both ways, so that the two cannot differ: `io` is a Writing or a Reading.
template <typename Io>
void sizes(Io& io, auto& list) {
  io.list(list, sizeof(int64_t), [&](int64_t& each) { io.number(each); });
  TORCH_CHECK(list.size() <= kMostDimensions, "a tensor has ", list.size(), " dimensions.");
}

template <typename Io>
void argument(Io& io, Argument& argument) {
  io.kind(argument.kind);
  if (argument.kind == Argument::Kind::kConstant) return io.constant(argument.constant, 0);
  io.list(argument.values, sizeof(int32_t), [&](int& each) { io.number(each); });
}

template <typename Io>
void call(Io& io, StoredCall& call) {
  if (io.has_version(2)) io.number(call.tables);
  io.list(call.inputs, sizeof(uint64_t), [&](std::string_view& each) { io.data(each); });
  io.list(call.operators, sizeof(uint64_t), [&](uint64_t& each) { io.number(each); });
  io.number(call.outcome);
  io.number(call.seconds);
  io.list(call.results, sizeof(uint64_t), [&](std::string_view& each) { io.data(each); });
}

template <typename Io>
void program(Io& io, StoredProgram& program) {
  io.list(program.inputs, 14, [&](StoredInput& input) {
    io.type(input.type);
    sizes(io, input.sizes);
    sizes(io, input.strides);
    io.number(input.alignment);
    io.number(input.same_as);
  });
  io.list(program.memories, 21, [&](StoredMemory& memory) {
    io.origin(memory.origin);
    io.number(memory.index);
    io.text(memory.constant);
    io.number(memory.host_filled);
    io.text(memory.left_as);
    io.number(memory.left_value);
  });
  io.list(program.values, 23, [&](Value& value) {
    io.number(value.memory);
    io.number(value.offset);
    sizes(io, value.sizes);
    sizes(io, value.strides);
    io.type(value.type);
    io.flag(value.wrapped);
    io.flag(value.requires_grad);
  });
  io.list(program.operators, 13, [&](StoredOperator& op) {
    io.number(op.schema);
    io.list(op.in, 2, [&](Argument& each) { argument(io, each); });
    io.list(op.out, 2, [&](Argument& each) { argument(io, each); });
    io.flag(op.grad_mode);
  });
  io.list(program.results, sizeof(int32_t), [&](int32_t& each) { io.number(each); });
  io.list(program.updates, 12, [&](StoredUpdate& update) {
    io.number(update.optimizer);
    io.number(update.parameter);
    io.list(update.uses, 12, [&](StoredUse& use) {
      io.number(use.op);
      io.number(use.argument);
      io.number(use.in_update);
    });
  });
  if (io.has_version(2)) {
    io.number(program.eager.seconds);
    io.number(program.eager.calls);
  }
  io.optional(program.call, [&](StoredCall& each) { call(io, each); });
}

template <typename Io>
void tensor(Io& io, StoredTensor& tensor) {
  io.number(tensor.bytes);
  io.flag(tensor.is_fixed);
  io.list(tensor.views, 22, [&](StoredView& view) {
    io.text(view.name);
    io.type(view.type);
    sizes(io, view.sizes);
    sizes(io, view.strides);
    io.number(view.offset);
    io.flag(view.is_parameter);
  });
  io.optional(tensor.value, [&](std::string_view& value) { io.data(value); });
}

void make_generators(StoredStep& step) {
  step.generators = {at::detail::getDefaultCPUGenerator()};
  while (step.generators.size() < step.generator_states.size())
    step.generators.push_back(at::detail::createCPUGenerator());
}

template <typename Io>
void body(Io& io, StoredStep& step) {
  for (std::string* text : {&step.overdrive, &step.torch, &step.capability, &step.settings}) io.text(*text);
  io.number(step.threads);
  io.type(step.default_type);
  io.list(step.schemas, sizeof(uint32_t), [&](std::string& each) { io.text(each); });
  io.list(step.generator_states, sizeof(uint32_t), [&](std::string& each) { io.text(each); });
  if constexpr (std::is_same_v<Io, Reading>) make_generators(step);
  io.list(step.tensors, 14, [&](StoredTensor& each) { tensor(io, each); });
  io.list(step.optimizers, 9, [&](StoredOptimizer& optimizer) {
    io.number(optimizer.kind);
    io.list(optimizer.groups, sizeof(uint32_t), [&](std::vector<double>& group) {
      io.list(group, sizeof(double), [&](double& each) { io.number(each); });
    });
    io.list(optimizer.parameters, 12, [&](StoredOptimizer::Parameter& parameter) {
      io.number(parameter.group);
      io.number(parameter.steps);
    });
  });
  io.list(step.functions, 8, [&](StoredFunction& function) {
    io.text(function.name);
    io.list(function.programs, 25, [&](StoredProgram& each) { program(io, each); });
  });
}

}  // namespace

std::string to_bytes(const StoredStep& step) {
  Writing io(step);
  StoredStep copy = step;
  body(io, copy);
  ByteWriter header;
  header.bytes() = kMagic;
  header.number(kFileVersion);
  header.number(uint32_t{0});
  header.number(static_cast<uint64_t>(io.out.bytes().size()));
  header.number(digest_of(io.out.bytes()));
  return header.bytes() + io.out.bytes();
}

uint64_t digest_of_tables(const StoredStep& step) {
  Writing io(step);
  StoredStep copy = step;
  for (StoredTensor& tensor : copy.tensors) {
    if (tensor.value) tensor.value.emplace();
  }
  for (StoredFunction& function : copy.functions) {
    for (StoredProgram& program : function.programs) program.call.reset();
  }
  body(io, copy);
  return digest_of(io.out.bytes());
}

StoredStep from_bytes(std::shared_ptr<std::string> bytes) {
  const std::string_view all = *bytes;
  TORCH_CHECK(!all.starts_with(kArchiveMagic),
              "this is no step file, but a state, as torch.save() and save_state() write it; load_state() of a "
              "loaded step reads it.");
  TORCH_CHECK(all.starts_with(kMagic), "this is no step file.");
  TORCH_CHECK(all.size() >= kHeaderBytes, "the file ends in the middle.");
  ByteReader header(all.substr(kMagic.size()));
  const auto version = header.number<uint32_t>();
  TORCH_CHECK(version >= 1 && version <= kFileVersion, "the file has version ", version,
              version > kFileVersion ? ", of a newer Overdrive" : "",
              ", and this Overdrive reads versions 1 to ", kFileVersion, ".");
  TORCH_CHECK(header.number<uint32_t>() == 0, "the header has a number where a zero belongs.");
  const std::string_view rest = all.substr(kHeaderBytes);
  TORCH_CHECK(header.number<uint64_t>() == rest.size(), "the file was cut off, or something follows it.");
  TORCH_CHECK(header.number<uint64_t>() == digest_of(rest), "the file is damaged: its checksum differs.");
  StoredStep step;
  step.version = version;
  step.bytes = std::move(bytes);
  Reading io(step, rest, version);
  body(io, step);
  TORCH_CHECK(io.in.is_done(), "something follows the last function.");
  return step;
}

std::string name_of_schema(const std::string& schema) { return schema.substr(0, schema.find('(')); }

}  // namespace overdrive::replay
