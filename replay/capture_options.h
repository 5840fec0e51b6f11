// Options and counters of a captured step. Plain values; any thread may read a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace overdrive {

// Of CaptureOptions::lanes: as many as help, and processors are given.
constexpr int kAutoLanes = 0;

struct CaptureOptions {  // What capture() takes: promises, limits and checks.
  // The optimizer whose step() the function calls, once: SGD, Adam, AdamW, RMSprop or Adagrad. Its options are
  // read in every call, so learning rates may change. It must outlive the step.
  torch::optim::Optimizer* optimizer = nullptr;
  // Several of them, whose step() the function calls, each once.
  std::vector<torch::optim::Optimizer*> optimizers = {};
  // Modules whose train() and eval() change what the function does; so do options of LibTorch's own.
  std::vector<std::shared_ptr<torch::nn::Module>> modules = {};
  // A promise: the function changes parameters by numbers that never change, without an optimizer.
  bool constant_numbers = false;
  // A promise: dropout, batch norm and their like stay in the mode in which they were recorded.
  bool constant_modes = false;
  // Recordings that are kept at most: one per set of sizes, types and modes, as long as their memory is at most
  // 256 MiB. Calls that fit none of them run eagerly.
  size_t programs = 4096;
  // Every n-th replay is taken back, made eagerly and compared; a difference is an error. 0: as
  // OVERDRIVE_CAPTURE_CHECK says, which is the 10th, the 100th, the 1,000th and so on when it is not set.
  uint64_t check_every = 0;
  // Whether a replay leaves out what it need not do: a step that another has made, results that nobody reads,
  // constants. The bits are the same.
  bool passes = true;
  // On how many threads operators of a replay that do not need each other run at the same time, at most; each
  // of them on one. kAutoLanes: on as many as help. 1: as OVERDRIVE_CAPTURE_LANES says, which is 1 when it is
  // not set. A part has one lane. The bits are those of one thread.
  int lanes = 1;
  // How many calls are eager before the first one is recorded, for each recording. More than one show what an
  // eager call takes, which a step file carries.
  size_t eager_calls = 1;
  // Replays go on where they are slower than eager calls. When it is false, both are timed in turn for some
  // calls after the first replays, and calls run eagerly where replays take over 1 % longer;
  // OVERDRIVE_CAPTURE_ALWAYS=1 is the same as true.
  bool always = false;
};

struct CaptureStats {  // Calls of a captured step by their outcome.
  uint64_t calls = 0;
  uint64_t eager = 0;
  uint64_t recorded = 0;
  uint64_t checked = 0;
  uint64_t replayed = 0;
  // Replays that threw on their data, or met another answer than was recorded, and were made eagerly instead.
  uint64_t undone = 0;
  // Recordings that did not fit any more what the step uses from outside.
  uint64_t outdated = 0;
  // Of the eager calls, those that were timed beside replays (CaptureOptions::always).
  uint64_t weighed = 0;
  // Of a part: backwards that were replayed, and those that ran the function once more.
  uint64_t backwards = 0;
  uint64_t again = 0;
};

}  // namespace overdrive
