// Files that somebody has damaged: each parser gives a result or an error of this project, and never crashes,
// hangs or takes much memory. Every damage is a function of its seed. OVERDRIVE_TEST_SECONDS makes the tests
// take longer, OVERDRIVE_TEST_SEED begins elsewhere.
#include "bench/output_file.h"
#include "engine/engine.h"
#include "examples/data/burgers.h"
#include "examples/data/data_files.h"
#include "examples/data/digits.h"
#include "examples/data/text.h"
#include "examples/trainers/checkpoint_file.h"
#include "examples/trainers/trainer.h"
#include "test/support/number_of_environment.h"
#include "test/support/pch.h"

#include <sys/resource.h>
#include <torch/script.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace {

using namespace overdrive;
using namespace overdrive::trainers;
namespace fs = std::filesystem;

constexpr rlim_t kMostMoreMemory = rlim_t{1} << 30;
constexpr unsigned kMostSeconds = 10;

std::string read(const fs::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}
void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// One to three of: flipped bits, another byte, the end cut off, a piece twice, a piece left out, a huge number.
std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? size_t{0} : static_cast<size_t>(random() % n); };
  for (size_t times = 1 + below(3); times > 0 && !bytes.empty(); --times) {
    // Heads and tails hold the sizes.
    size_t at = below(bytes.size());
    if (below(3) == 0) at = below(std::min<size_t>(64, bytes.size()));
    if (below(3) == 0) at = bytes.size() - 1 - below(std::min<size_t>(256, bytes.size()));
    const size_t length = std::min(bytes.size() - at, 1 + below(64));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.erase(at, length);
        break;
      default:
        static const std::string huge[] = {
            "99999999999999999999",         "-1", "1e999", "nan", std::string(8, '\xff'),
            std::string("\x7f\xff\xff\xff")};
        bytes.replace(at, length, huge[below(std::size(huge))]);
    }
  }
  return bytes;
}

// For the handlers: what was tried when the process came to its end.
char now_tried[64];
void tell_and_end(int number) {
  const char* const why = number == SIGALRM ? "a hang at " : "a crash at ";
  [[maybe_unused]] ssize_t told = ::write(STDERR_FILENO, why, strlen(why));
  told = ::write(STDERR_FILENO, now_tried, strlen(now_tried));
  ::_exit(1);
}

class MutatedFiles : public testing::Test {
 protected:
  MutatedFiles() : folder_(fs::temp_directory_path() / ("overdrive-mutated-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    at::set_num_threads(1);
    for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(number, tell_and_end);
  }
  ~MutatedFiles() override {
    ::alarm(0);
    for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(number, SIG_DFL);
    data::set_folder("");
    fs::remove_all(folder_);
  }

  // Damages `good` until the time is over. `parse` reads the bytes; an error of it must contain `place`.
  template <typename Parse>
  void damage(const char* name, const std::string& good, const std::string& place, Parse&& parse) {
    parse(good);
    const uint64_t first = test::number_of_environment("OVERDRIVE_TEST_SEED", 1);
    const auto end =
        std::chrono::steady_clock::now() +
        std::chrono::milliseconds(1000 * test::number_of_environment("OVERDRIVE_TEST_SECONDS", 0) / kTests);
    const MemoryLimit limit;
    uint64_t seed = first, errors = 0;
    for (; seed < first + kLeastTries || std::chrono::steady_clock::now() < end; ++seed) {
      std::snprintf(now_tried, sizeof now_tried, "%s, seed %llu\n", name,
                    static_cast<unsigned long long>(seed));
      ::alarm(kMostSeconds);
      std::mt19937_64 random(seed);
      try {
        parse(mutated(good, random));
      } catch (const c10::Error& error) {
        ++errors;
        EXPECT_THAT(error.msg(), testing::HasSubstr(place)) << now_tried;
      } catch (const std::exception& error) {
        ADD_FAILURE() << now_tried << "another error: " << error.what();
      }
      if (HasFailure()) break;
    }
    ::alarm(0);
    std::printf("%s: seeds %llu to %llu, %llu errors\n", name, static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(seed - 1), static_cast<unsigned long long>(errors));
    EXPECT_GT(errors, 0u);
  }

  const fs::path folder_;

 private:
  static constexpr uint64_t kLeastTries = 100, kTests = 8;

  // More memory than this is an allocation that fails, and so another error.
  class MemoryLimit {
   public:
    MemoryLimit() {
      ::getrlimit(RLIMIT_AS, &before_);
      rlim_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit small{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMostMoreMemory,
                         before_.rlim_max};
      ::setrlimit(RLIMIT_AS, &small);
    }
    ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }

   private:
    rlimit before_{};
  };
};

TEST_F(MutatedFiles, OfDigits) {
  const std::string images = "digits-images.idx3-ubyte", labels = "digits-labels.idx1-ubyte";
  const fs::path data = OVERDRIVE_TEST_DATA_FOLDER;
  data::set_folder(folder_.string());
  // A small set is read as quickly as it is damaged.
  std::string few_images = read(data / images).substr(0, 16 + 20 * 64),
              few_labels = read(data / labels).substr(0, 28);
  few_images.replace(4, 4, std::string("\0\0\0\x14", 4));
  few_labels.replace(4, 4, std::string("\0\0\0\x14", 4));
  write(folder_ / labels, few_labels);
  damage("digits, images", few_images, "digit", [&](const std::string& bytes) {
    write(folder_ / images, bytes);
    data::load_digits();
  });
  write(folder_ / images, few_images);
  damage("digits, labels", few_labels, "digit", [&](const std::string& bytes) {
    write(folder_ / labels, bytes);
    data::load_digits();
  });
}

TEST_F(MutatedFiles, OfText) {
  const std::string good = read(fs::path(OVERDRIVE_TEST_DATA_FOLDER) / "alice.txt").substr(0, 10'500);
  data::set_folder(folder_.string());
  damage("text", good, "alice.txt", [&](const std::string& bytes) {
    write(folder_ / "alice.txt", bytes);
    data::load_text();
  });
}

TEST_F(MutatedFiles, OfATable) {
  const std::string good = read(fs::path(OVERDRIVE_TEST_DATA_FOLDER) / "burgers.csv").substr(0, 600);
  data::set_folder(folder_.string());
  damage("burgers", good.substr(0, good.rfind('\n') + 1), "burgers.csv", [&](const std::string& bytes) {
    write(folder_ / "burgers.csv", bytes);
    data::load_burgers();
  });
}

TEST_F(MutatedFiles, OfCheckpoints) {
  const TrainerInfo& info = *find_trainers("pinn").at(0);
  const auto trainer = make_trainer(info, {});
  const std::string path = (folder_ / "a.checkpoint").string();
  save_checkpoint(path, info, *trainer, 3);
  damage("checkpoint", read(path), path, [&](const std::string& bytes) {
    write(path, bytes);
    load_checkpoint(path, info, *trainer);
  });
}

TEST_F(MutatedFiles, OfTorchScript) {
  torch::jit::Module module("m");
  module.register_parameter("w", torch::ones({3}, torch::requires_grad()), /*is_buffer=*/false);
  module.define("def forward(self, x):\n  return x * self.w\n");
  const std::string path = (folder_ / "a.pt").string();
  module.save(path);
  damage("TorchScript", read(path), path, [&](const std::string& bytes) {
    write(path, bytes);
    torchscript(path, {{.sizes = {3}}}).make({});
  });
}

TEST_F(MutatedFiles, AndShapesOfInputs) {
  damage("--input", "16x128:65", "an input's shape", [](const std::string& text) { parse_input_shape(text); });
}

TEST_F(MutatedFiles, AndVariablesOfTheEnvironment) {
  damage("OVERDRIVE_CHECK", "1000", "OVERDRIVE_CHECK is", [](const std::string& text) {
    ::setenv("OVERDRIVE_CHECK", text.c_str(), 1);
    const auto unset = std::shared_ptr<void>(nullptr, [](void*) { ::unsetenv("OVERDRIVE_CHECK"); });
    Options::from_environment();
  });
}

// In a folder that others may write, a link of theirs may wait under the name of the draft.
TEST_F(MutatedFiles, ThatAreLinksDoNotLeadOutputElsewhere) {
  const fs::path target = folder_ / "target", out = folder_ / "out.json";
  write(target, "kept");
  fs::create_symlink(target, out.string() + "." + std::to_string(::getpid()) + ".0.tmp");
  bench::OutputFile(out.string()).write("new");
  EXPECT_EQ(read(target), "kept");
  EXPECT_EQ(read(out), "new");
}

// What one damage in a million does, made by hand.
TEST_F(MutatedFiles, ThatClaimTooMuchAreErrors) {
  data::set_folder(folder_.string());
  const auto refuses = [](const auto& read_it, const char* words) {
    try {
      read_it();
      ADD_FAILURE() << "was read; expected: " << words;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.msg(), testing::HasSubstr(words));
    }
  };
  // 2^31 x 2^31 x 4 is zero in 64 bits.
  write(folder_ / "digits-images.idx3-ubyte", std::string("\0\0\x8\x3\x80\0\0\0\x80\0\0\0\0\0\0\x4", 16));
  refuses([] { data::load_digits(); }, "dimension");
  fs::create_directory(folder_ / "alice.txt");
  refuses([] { data::load_text(); }, "cannot read the data file");
  fs::create_symlink("/dev/zero", folder_ / "burgers.csv");
  refuses([] { data::load_burgers(); }, "cannot read the data file");
}

}  // namespace
