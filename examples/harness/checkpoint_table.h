// What checkpointing saves: the peak of activations in one training step with each way of it. Runs on the
// calling thread, on the CPU, with the engine that is installed.
#pragma once

#include "examples/trainers/trainer.h"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace overdrive::harness {

// "sqrt" or "revolve:K"; throws UsageError for anything else.
trainers::Checkpointing parse_checkpointing(const std::string& text);
std::string name_of(const trainers::Checkpointing& checkpointing);

// One object for each way: checkpoint, peak_bytes, of_plain, and same_bits, whether the step left the plain
// step's parameters.
nlohmann::json checkpoint_table(const trainers::TrainerInfo& info, const trainers::Setup& setup);
std::string text_of_checkpoint_table(const nlohmann::json& rows);

}  // namespace overdrive::harness
