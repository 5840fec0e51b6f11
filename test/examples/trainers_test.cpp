// Every trainer does the same bits under both engines, and a training that is resumed goes on as if never
// stopped.
#include "bench/engine_switch.h"
#include "examples/harness/comparison.h"
#include "examples/trainers/checkpoint_file.h"
#include "test/support/error_of.h"
#include "test/support/pch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace {

using namespace overdrive::harness;
using namespace overdrive::trainers;
namespace bench = overdrive::bench;

// A folder that goes away with the test.
class TrainersTest : public testing::Test {
 protected:
  TrainersTest() : folder_(std::filesystem::temp_directory_path() / ("overdrive-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    at::set_num_threads(1);
  }
  ~TrainersTest() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  size_t files() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  const std::filesystem::path folder_;
};

const TrainerInfo& trainer_named(const char* name) { return *find_trainers(name).at(0); }

Digest train(Trainer& trainer, int steps) {
  Meter meter;
  for (int i = 0; i < steps; ++i) trainer.step(meter);
  return digest_of(trainer);
}

Digest train(const TrainerInfo& info, const Setup& setup, bench::EngineKind engine, int steps) {
  const bench::UseEngine use(engine);
  const auto trainer = make_trainer(info, setup);
  return train(*trainer, steps);
}

class EachTrainer : public TrainersTest, public testing::WithParamInterface<TrainerInfo> {};

TEST_P(EachTrainer, HasTheSameGradientsAndParametersUnderBothEngines) {
  const Digest stock = train(GetParam(), {}, bench::EngineKind::kStock, 3);
  const Digest ours = train(GetParam(), {}, bench::EngineKind::kOverdrive, 3);
  EXPECT_EQ(stock.parameters, ours.parameters);
  EXPECT_EQ(stock.gradients, ours.gradients);
}

TEST_P(EachTrainer, GoesOnFromACheckpointAsIfNeverStopped) {
  const TrainerInfo& info = GetParam();
  const auto unbroken = make_trainer(info, {.seed = 3});
  const Digest expected = train(*unbroken, 4);
  const auto first_half = make_trainer(info, {.seed = 3});
  train(*first_half, 2);
  save_checkpoint(file("half.pt"), info, *first_half, 2);
  const auto second_half = make_trainer(info, {.seed = 4});
  EXPECT_EQ(load_checkpoint(file("half.pt"), info, *second_half), 2);
  EXPECT_EQ(train(*second_half, 2).parameters, expected.parameters);
}

TEST_P(EachTrainer, RunsInDoubleWithOtherBitsThanInFloat) {
  const auto trainer = make_trainer(GetParam(), {.dtype = torch::kFloat64});
  const Digest found = train(*trainer, 1);
  for (const auto& parameter : trainer->parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat64);
  EXPECT_NE(found.parameters, train(GetParam(), {}, bench::EngineKind::kStock, 1).parameters);
  EXPECT_TRUE(std::isfinite(trainer->evaluate()));
}

INSTANTIATE_TEST_SUITE_P(Trainers, EachTrainer, testing::ValuesIn(trainers()),
                         [](const auto& trainer) { return trainer.param.name; });

using overdrive::test::error_of;

TEST_F(TrainersTest, RefusesACheckpointOfAnotherModelOrAnotherDtype) {
  const TrainerInfo &mlp = trainer_named("digits_mlp"), &cnn = trainer_named("digits_cnn");
  save_checkpoint(file("mlp.pt"), mlp, *make_trainer(mlp, {}), 0);
  const auto other = make_trainer(cnn, {});
  const auto wide = make_trainer(mlp, {.dtype = torch::kFloat64});
  EXPECT_THAT(error_of([&] { load_checkpoint(file("mlp.pt"), cnn, *other); }),
              testing::HasSubstr("is a checkpoint of digits_mlp, not of digits_cnn"));
  EXPECT_THAT(error_of([&] { load_checkpoint(file("mlp.pt"), mlp, *wide); }),
              testing::HasSubstr("is a checkpoint in Float, not in Double"));
}

TEST_F(TrainersTest, RefusesAFileThatIsNoCheckpoint) {
  std::ofstream(file("text.pt")) << "not a zip file";
  const TrainerInfo& mlp = trainer_named("digits_mlp");
  const auto trainer = make_trainer(mlp, {});
  EXPECT_THAT(error_of([&] { load_checkpoint(file("text.pt"), mlp, *trainer); }),
              testing::HasSubstr("text.pt is not a checkpoint of this program"));
}

// No file of this process may grow beyond `bytes` while it lives: what a full disk looks like to a program.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit old_{};
  void (*const old_handler_)(int);
};

TEST_F(TrainersTest, KeepsTheOlderCheckpointWhenTheDiskIsFull) {
  const TrainerInfo& mlp = trainer_named("digits_mlp");
  const auto trainer = make_trainer(mlp, {});
  save_checkpoint(file("mlp.pt"), mlp, *trainer, 7);
  const std::string message = error_of([&] {
    const SmallDisk disk(4096);
    save_checkpoint(file("mlp.pt"), mlp, *trainer, 8);
  });
  EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("cannot write"), testing::HasSubstr("mlp.pt"),
                                      testing::Not(testing::HasSubstr("\n"))));
  EXPECT_EQ(files(), 1u) << "something half-written was left";
  EXPECT_EQ(load_checkpoint(file("mlp.pt"), mlp, *trainer), 7);
}

}  // namespace
