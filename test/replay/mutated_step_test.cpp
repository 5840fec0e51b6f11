// Step files that somebody has damaged, some of them with care: a right checksum, tables that fit each other.
// Each is an error of this project, or a step that can be called, and one that leaves the checksum or the calls
// of the file as they are is always an error. Every damage is a function of its seed.
// OVERDRIVE_TEST_SECONDS makes the test take longer, OVERDRIVE_TEST_SEED begins elsewhere.
#include "replay/file/bytes.h"
#include "replay/file/stored_step.h"
#include "test/replay/step_file_fixture.h"
#include "test/support/number_of_environment.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <mutex>
#include <random>
#include <unordered_map>

namespace overdrive::test {
namespace {

using namespace torch::nn;
using namespace overdrive::replay;

constexpr unsigned kMostSeconds = 20;

// For the handlers: what was tried when the process came to its end.
char now_tried[96];
void tell_and_end(int number) {
  const char* const why = number == SIGALRM ? "a hang at " : "a crash at ";
  [[maybe_unused]] ssize_t told = ::write(STDERR_FILENO, why, strlen(why));
  told = ::write(STDERR_FILENO, now_tried, strlen(now_tried));
  ::_exit(1);
}

// Every piece of memory ends at a page that nobody may touch, and another one stands before it.
class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &free_it, at::kCPU};
    const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    const size_t pages = (rounded + kPage - 1) / kPage * kPage;
    void* all = ::mmap(nullptr, pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(all != MAP_FAILED, "there is no memory.");
    char* begin = static_cast<char*>(all) + kPage;
    TORCH_CHECK(::mprotect(begin, pages, PROT_READ | PROT_WRITE) == 0, "there is no memory.");
    char* data = begin + pages - rounded;
    const std::lock_guard<std::mutex> lock(mutex());
    sizes()[data] = {all, pages + 2 * kPage};
    return {data, data, &free_it, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_it; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }

 private:
  static constexpr size_t kPage = 4096, kAlignment = 64;
  using Sizes = std::unordered_map<void*, std::pair<void*, size_t>>;
  static Sizes& sizes() {
    static auto* all = new Sizes();
    return *all;
  }
  static std::mutex& mutex() {
    static auto* one = new std::mutex();
    return *one;
  }
  static void free_it(void* data) {
    if (data == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex());
    const auto known = sizes().find(data);
    if (known == sizes().end()) return ::free(data);  // of the allocator before
    ::munmap(known->second.first, known->second.second);
    sizes().erase(known);
  }
};

// While it lives; what was allocated before goes back by its own deleter.
struct Guarded {
  Guarded() { c10::SetCPUAllocator(&allocator(), 1); }
  static GuardedAllocator& allocator() {
    static auto* one = new GuardedAllocator();
    return *one;
  }
};

class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  bool chance(size_t one_in) { return below(one_in) == 0; }

  // Bytes alone, with or without the checksum of what they are now.
  std::string bytes(std::string file, bool mended) {
    for (size_t times = 1 + below(3); times > 0; --times) {
      const size_t at = mended ? 32 + below(file.size() - 32) : below(file.size());
      const size_t length = std::min(file.size() - at, 1 + below(16));
      switch (below(5)) {
        case 0:
          file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
          break;
        case 1:
          file[at] = static_cast<char>(below(256));
          break;
        case 2:
          file.insert(at, file.substr(at, length));
          break;
        case 3:
          file.erase(at, length);
          break;
        default:
          file.replace(at, length, std::string(length, below(2) == 0 ? '\xff' : '\0'));
      }
      if (file.size() < 40) return file;
    }
    if (!mended) return file;
    const uint64_t size = file.size() - 32, digest = digest_of(std::string_view(file).substr(32));
    std::memcpy(file.data() + 16, &size, sizeof size);
    std::memcpy(file.data() + 24, &digest, sizeof digest);
    return file;
  }

  // Takes the calls away, so that only the checks stand between the file and the kernels, or makes them prove
  // the tables as they are now, or leaves them as they are. Returns whether it leaves them.
  bool calls(StoredStep& step) {
    const size_t what = below(3);
    const uint64_t digest = digest_of_tables(step);
    for (StoredFunction& function : step.functions) {
      for (StoredProgram& program : function.programs) {
        if (what == 0) program.call.reset();
        if (what == 1 && program.call) program.call->tables = digest;
      }
    }
    return what == 2;
  }

  // One entry of the tables or a few.
  void tables(StoredStep& step) {
    for (size_t times = 1 + below(2); times > 0; --times) {
      StoredFunction& function = step.functions[below(step.functions.size())];
      StoredProgram& program = function.programs[below(function.programs.size())];
      switch (below(9)) {
        case 0:
        case 1:
          value(program);
          break;
        case 2:
        case 3:
          operators(step, program);
          break;
        case 4:
        case 5:
          argument(program);
          break;
        case 6:
          memory(program);
          break;
        case 7:
          ends(program);
          break;
        default:
          shared(step);
      }
    }
  }

 private:
  int64_t number(int64_t now) {
    const int64_t others[] = {
        0,         1,        -1, 2, 3, now + 1, now - 1, now * 2, now / 2, int64_t{1} << 20, int64_t{1} << 40,
        INT64_MIN, INT64_MAX};
    return others[below(std::size(others))];
  }
  template <typename List>
  void list(List& numbers) {
    if (numbers.empty() || chance(8)) {
      numbers.push_back(number(1));
    } else if (chance(8)) {
      numbers.pop_back();
    } else {
      auto& each = numbers[below(numbers.size())];
      each = number(each);
    }
  }
  at::ScalarType type() {
    const at::ScalarType all[] = {at::kByte,  at::kBool,   at::kInt,          at::kLong,    at::kHalf,
                                  at::kFloat, at::kDouble, at::kComplexFloat, at::kBFloat16};
    return all[below(std::size(all))];
  }

  void value(StoredProgram& program) {
    Value& changed = program.values[below(program.values.size())];
    switch (below(7)) {
      case 0:
        return list(changed.sizes);
      case 1:
        return list(changed.strides);
      case 2:
        changed.offset = number(changed.offset);
        return;
      case 3:
        changed.type = type();
        return;
      case 4:
        changed.memory = static_cast<int>(below(program.memories.size() + 1));
        return;
      case 5: {  // two at once keep the bytes
        if (changed.sizes.size() < 2) return;
        std::swap(changed.sizes[0], changed.sizes[changed.sizes.size() - 1]);
        if (chance(2)) std::swap(changed.strides[0], changed.strides[changed.sizes.size() - 1]);
        return;
      }
      default:
        changed.wrapped = !changed.wrapped;
    }
  }

  void operators(StoredStep& step, StoredProgram& program) {
    const size_t count = program.operators.size(), at = below(count);
    switch (below(6)) {
      case 0:
        program.operators.erase(program.operators.begin() + static_cast<int64_t>(at));
        break;
      case 1:
        program.operators.insert(program.operators.begin() + static_cast<int64_t>(at), program.operators[at]);
        break;
      case 2:
        std::swap(program.operators[at], program.operators[below(count)]);
        return;
      case 3:
        program.operators[at].schema = static_cast<uint32_t>(below(step.schemas.size() + 1));
        return;
      case 4: {  // another operator, which may take the same
        const auto names = c10::Dispatcher::singleton().getAllOpNames();
        const auto handle = c10::Dispatcher::singleton().findSchema(names[below(names.size())]);
        if (!handle) return;
        step.schemas.push_back(c10::toString(handle->schema()));
        program.operators[at].schema = static_cast<uint32_t>(step.schemas.size() - 1);
        return;
      }
      default:
        program.operators[at].grad_mode = !program.operators[at].grad_mode;
        return;
    }
    if (program.call) program.call->operators.resize(program.operators.size());
  }

  void argument(StoredProgram& program) {
    StoredOperator& op = program.operators[below(program.operators.size())];
    auto& arguments = chance(4) ? op.out : op.in;
    if (arguments.empty()) return;
    Argument& changed = arguments[below(arguments.size())];
    if (changed.kind == Argument::Kind::kConstant) {
      changed.constant = constant(changed.constant);
    } else if (chance(8)) {
      changed.kind = static_cast<Argument::Kind>(below(4));
    } else if (chance(8) || changed.values.empty()) {
      changed.values.push_back(static_cast<int>(below(program.values.size())));
    } else if (chance(8)) {
      changed.values.pop_back();
    } else {
      changed.values[below(changed.values.size())] = static_cast<int>(below(program.values.size() + 2)) - 1;
    }
  }

  c10::IValue constant(const c10::IValue& now) {
    if (chance(10)) {
      const c10::IValue others[] = {c10::IValue(),          c10::IValue(true),
                                    c10::IValue(number(3)), c10::IValue(0.5),
                                    c10::IValue("floor"),   c10::IValue(c10::List<int64_t>({1, 2}))};
      return others[below(std::size(others))];
    }
    if (now.isBool()) return !now.toBool();
    if (now.isInt()) return number(now.toInt());
    if (now.isDouble()) {
      const double others[] = {0.0, -1.0, 1e300, std::nan(""), now.toDouble() * 2};
      return others[below(std::size(others))];
    }
    if (!now.isList()) return now;
    c10::impl::GenericList items(c10::AnyType::get());
    for (const c10::IValue& item : now.toListRef()) items.push_back(chance(2) ? constant(item) : item);
    if (chance(6)) items.push_back(c10::IValue(number(2)));
    return items;
  }

  void memory(StoredProgram& program) {
    StoredMemory& changed = program.memories[below(program.memories.size())];
    switch (below(5)) {
      case 0:
        changed.origin = static_cast<Origin>(below(4));
        break;
      case 1:
        changed.index = static_cast<uint32_t>(number(changed.index));
        break;
      case 2:
        changed.constant.resize(below(64));
        break;
      case 3:
        changed.host_filled = static_cast<int32_t>(below(program.operators.size() + 2)) - 1;
        break;
      default:
        changed.left_as = chance(2) ? "" : "left";
        changed.left_value = static_cast<int32_t>(below(program.values.size() + 2)) - 1;
    }
  }

  // What goes in and out, numbers of the optimizer, and the call.
  void ends(StoredProgram& program) {
    switch (below(6)) {
      case 0:
        if (!program.results.empty())
          program.results[0] = static_cast<int32_t>(below(program.values.size() + 2)) - 1;
        break;
      case 1: {
        StoredInput& input = program.inputs[below(program.inputs.size())];
        list(chance(2) ? input.sizes : input.strides);
        break;
      }
      case 2: {
        StoredInput& input = program.inputs[below(program.inputs.size())];
        input.alignment = static_cast<uint8_t>(below(18));
        if (chance(3)) input.type = type();
        if (chance(3)) input.same_as = static_cast<uint32_t>(below(3));
        break;
      }
      case 3: {
        if (program.updates.empty()) break;
        StoredUpdate& update = program.updates[below(program.updates.size())];
        if (update.uses.empty()) break;
        StoredUse& use = update.uses[below(update.uses.size())];
        use = {static_cast<int32_t>(number(use.op)), static_cast<int32_t>(number(use.argument)),
               static_cast<uint32_t>(number(use.in_update))};
        break;
      }
      case 4:
        if (!program.updates.empty()) program.updates[0].optimizer = static_cast<uint32_t>(number(0));
        break;
      default:
        if (program.call) program.call->outcome ^= 1;
    }
  }

  void shared(StoredStep& step) {
    StoredTensor& tensor = step.tensors[below(step.tensors.size())];
    StoredView& view = tensor.views[below(tensor.views.size())];
    switch (below(6)) {
      case 0:
        tensor.bytes = static_cast<uint64_t>(number(static_cast<int64_t>(tensor.bytes)));
        break;
      case 1:
        list(chance(2) ? view.sizes : view.strides);
        break;
      case 2:
        view.offset = number(view.offset);
        break;
      case 3:
        tensor.is_fixed = !tensor.is_fixed;
        break;
      case 4:
        if (!step.optimizers.empty()) {
          StoredOptimizer& optimizer = step.optimizers[0];
          optimizer.kind = static_cast<uint8_t>(below(7));
          if (chance(2)) optimizer.groups[0].resize(below(8));
        }
        break;
      default:
        step.schemas[below(step.schemas.size())] += ' ';
    }
  }

  std::mt19937_64 random_;
};

class MutatedSteps : public testing::Test {
 protected:
  MutatedSteps() {
    static const Guarded guarded;
    at::set_num_threads(1);
    for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(number, tell_and_end);
    ::getrlimit(RLIMIT_AS, &before_);
  }
  ~MutatedSteps() override {
    ::alarm(0);
    for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(number, SIG_DFL);
    ::setrlimit(RLIMIT_AS, &before_);
  }

  // More memory than this is an allocation that fails.
  void limit_memory() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit small{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 30),
                       before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &small);
  }

  static Tensors inputs_of(const StoredProgram& program) {
    Tensors inputs;
    for (const StoredInput& input : program.inputs) {
      int64_t count = 1;
      for (const int64_t size : input.sizes) count *= size;
      if (count > (int64_t{1} << 20)) return {};
      inputs.push_back(input.same_as < inputs.size() ? inputs[input.same_as]
                                                     : at::zeros(input.sizes, input.type));
    }
    return inputs;
  }

  // Loads, and calls what could be loaded.
  static void try_file(const std::string& path) {
    Step step = load_step(path, {.most_memory = uint64_t{64} << 20});
    StoredStep read = from_bytes(std::make_shared<std::string>(read_file(path)));
    for (const StoredFunction& function : read.functions) {
      for (const StoredProgram& program : function.programs) step.call(function.name, inputs_of(program));
    }
  }

  struct Damaged {
    std::string bytes;
    // Whether checksum or call tell it in every case.
    bool must_fail;
  };
  static Damaged damaged(const std::string& good, uint64_t seed) {
    Damage damage(seed);
    if (damage.chance(3)) {
      const bool mended = !damage.chance(4);
      std::string bytes = damage.bytes(good, mended);
      const bool must_fail = !mended && bytes != good;
      return {std::move(bytes), must_fail};
    }
    StoredStep step = from_bytes(std::make_shared<std::string>(good));
    damage.tables(step);
    const bool must_fail = damage.calls(step) && to_bytes(step) != good;
    return {to_bytes(step), must_fail};
  }

  void damage(const char* name, FromFile& training) {
    training.step->save(training.path);
    const std::string good = read_file(training.path);
    const uint64_t first = number_of_environment("OVERDRIVE_TEST_SEED", 1);
    const auto end =
        std::chrono::steady_clock::now() +
        std::chrono::milliseconds(1000 * number_of_environment("OVERDRIVE_TEST_SECONDS", 0) / kTests);
    limit_memory();
    uint64_t seed = first, errors = 0, others = 0;
    for (; seed < first + kLeastTries || std::chrono::steady_clock::now() < end; ++seed) {
      std::snprintf(now_tried, sizeof now_tried, "%s, seed %llu\n", name,
                    static_cast<unsigned long long>(seed));
      ::alarm(kMostSeconds);
      try {
        const auto [bytes, must_fail] = damaged(good, seed);
        write_file(training.path, bytes);
        try_file(training.path);
        EXPECT_FALSE(must_fail) << now_tried << "it runs";
        ++others;
      } catch (const c10::Error&) {
        ++errors;
      } catch (const std::exception& error) {
        ADD_FAILURE() << now_tried << "another error: " << error.what();
      }
      if (HasFailure()) break;
    }
    ::alarm(0);
    std::printf("%s: seeds %llu to %llu, %llu errors, %llu steps that run\n", name,
                static_cast<unsigned long long>(first), static_cast<unsigned long long>(seed - 1),
                static_cast<unsigned long long>(errors), static_cast<unsigned long long>(others));
    EXPECT_GT(errors, 2 * others);
  }

 private:
  static constexpr uint64_t kLeastTries = 400, kTests = 5;

  rlimit before_{};
};

TEST_F(MutatedSteps, AreErrorsWhereTheChecksumIsLeft) {
  FromFile training([] { return small_mlp(adam()); });
  training.step->save(training.path);
  const std::string good = read_file(training.path);
  const uint64_t first = number_of_environment("OVERDRIVE_TEST_SEED", 1);
  uint64_t errors = 0, tries = 0;
  for (uint64_t seed = first; seed < first + 20'000; ++seed) {
    const auto bytes = std::make_shared<std::string>(Damage(seed).bytes(good, /*mended=*/false));
    if (*bytes == good) continue;
    ++tries;
    try {
      from_bytes(bytes);
      ADD_FAILURE() << "seed " << seed << " can be read";
    } catch (const c10::Error&) {
      ++errors;
    }
  }
  std::printf("%llu damaged files, %llu errors\n", static_cast<unsigned long long>(tries),
              static_cast<unsigned long long>(errors));
  EXPECT_EQ(errors, tries);
}

TEST_F(MutatedSteps, OfAnMlp) {
  FromFile training([] { return small_mlp(adam()); });
  damage("mlp", training);
}

TEST_F(MutatedSteps, OfConvolutions) {
  FromFile training([] {
    Sequential net(Conv2d(Conv2dOptions(1, 4, 3).padding(1)), BatchNorm2d(4), ReLU(), MaxPool2d(2),
                   Dropout(0.2), Conv2d(4, 6, 3), GELU(), AvgPool2d(2), Flatten(), Linear(6, 3));
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          return torch::cross_entropy_loss(net->forward(given[0]), given[1]);
        },
        [](int i) {
          Tensors batch = batch_of(i, {4, 1, 8, 8}, {4});
          batch[1] = (torch::arange(4) + i) % 3;
          return batch;
        });
  });
  damage("convolutions", training);
}

struct WordsImpl : Module {
  Embedding words{12, 8};
  GRU gru{GRUOptions(8, 8).batch_first(true)};
  LayerNorm norm{LayerNormOptions({8})};
  WordsImpl() {
    register_module("words", words);
    register_module("gru", gru);
    register_module("norm", norm);
  }
};
TORCH_MODULE(Words);

TEST_F(MutatedSteps, OfWords) {
  FromFile training([] {
    Words net;
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          const at::Tensor read = net->norm->forward(net->words->forward(given[0]));
          return std::get<0>(net->gru->forward(read)).gather(2, given[0].unsqueeze(2) % 8).square().mean();
        },
        [](int i) {
          return Tensors{(torch::arange(12).reshape({3, 4}) + i) % 12};
        });
  });
  damage("words", training);
}

TEST_F(MutatedSteps, OfRecurrentLayers) {
  FromFile training([] {
    LSTM net(LSTMOptions(5, 6).num_layers(2).bidirectional(true));
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable { return std::get<0>(net->forward(given[0])).square().mean(); },
        [](int i) {
          return batch_of(i, {3, 4, 5}, {1});
        });
  });
  damage("recurrent layers", training);
}

TEST_F(MutatedSteps, OfAttention) {
  FromFile training([] {
    Linear net(8, 24);
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          const auto parts = net->forward(given[0]).reshape({2, 5, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
          return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true).square().mean();
        },
        [](int i) {
          return batch_of(i, {2, 5, 8}, {1});
        },
        sgd());
  });
  damage("attention", training);
}

}  // namespace
}  // namespace overdrive::test
