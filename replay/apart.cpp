#include "replay/apart.h"

#include "replay/record/apart_call.h"
#include "replay/record/recorder.h"

namespace overdrive::replay {

std::vector<at::Tensor> run_apart(const std::shared_ptr<ApartFunction>& function,
                                  const std::vector<at::Tensor>& inputs) {
  Recorder* const recorder = Recorder::active();
  ApartTape* const tape = ApartTape::active();
  const bool is_of_the_step = tape && !tape->is_in_a_part();
  if (recorder && is_of_the_step) return recorder->apart(function, inputs);
  if (recorder)
    recorder->refuse(
        "A function runs apart in a captured part, whose backward may run it once more; capture the whole "
        "step, or the parts around it.");
  return tape ? tape->run(*function, inputs) : run_apart_alone(*function, inputs);
}

std::shared_ptr<ApartFunction> apart_function(Function function, const void* identity) {
  TORCH_CHECK(function, "An overdrive::Apart was given no function.");
  auto made = std::make_shared<ApartFunction>(ApartFunction{.call = std::move(function), .identity = identity});
  if (!identity) made->identity = made.get();
  return made;
}

void end_apart(ApartFunction& function) { function.is_there = false; }

}  // namespace overdrive::replay
