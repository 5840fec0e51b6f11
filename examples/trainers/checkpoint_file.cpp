#include "examples/trainers/checkpoint_file.h"

#include <torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace overdrive::trainers {

void save_checkpoint(const std::string& path, const TrainerInfo& info, const Trainer& trainer,
                     int64_t steps_done) {
  torch::serialize::OutputArchive archive;
  archive.write("trainer", c10::IValue(info.name));
  archive.write("steps_done", c10::IValue(steps_done));
  torch::serialize::OutputArchive model(archive.compilation_unit());
  trainer.save(model);
  archive.write("model", model);

  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  archive.save_to(file);
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int why = errno;
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    TORCH_CHECK(false, "cannot write the checkpoint ", path, ": ", std::strerror(why), ".");
  }
}

int64_t load_checkpoint(const std::string& path, const TrainerInfo& info, Trainer& trainer) {
  TORCH_CHECK(std::filesystem::exists(path), "there is no checkpoint ", path, ".");
  torch::serialize::InputArchive archive;
  c10::IValue name, steps_done;
  try {
    archive.load_from(path);
    archive.read("trainer", name);
    archive.read("steps_done", steps_done);
  } catch (const c10::Error&) {
    TORCH_CHECK(false, path, " is not a checkpoint of this program.");
  }
  TORCH_CHECK(name.toStringRef() == info.name, path, " is a checkpoint of ", name.toStringRef(), ", not of ",
              info.name, ".");
  torch::serialize::InputArchive model;
  archive.read("model", model);
  trainer.load(model);
  return steps_done.toInt();
}

}  // namespace overdrive::trainers
