// The writes of a recording: the memories that an operator changes, bytes that the program wrote through a
// pointer, and memory that an operator replaced.
#include "replay/record/operator_writes.h"
#include "replay/record/recorder.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>

namespace overdrive::replay {

namespace {

// A recording has a copy of it, and larger ones are data.
constexpr size_t kLargestArray = size_t{1} << 20;

}  // namespace

void Recorder::note_writes(Operator& op) {
  const auto add = [&](const Argument& argument) {
    for (const int value : argument.values) {
      if (value < 0) continue;
      const int index = program_.values[value].memory;
      program_.memories[index].written = true;
      if (std::find(op.writes.begin(), op.writes.end(), index) == op.writes.end()) op.writes.push_back(index);
    }
  };
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!writes_argument(arguments[i])) continue;
    if (!op.handle.hasTag(at::Tag::inplace_view)) {
      add(op.in[i]);
    } else if (op.in[i].is_tensor() && op.in[i].values[0] >= 0 &&
               program_.memory_of(op.in[i].values[0]).origin != Origin::kMade) {
      refuse(
          {c10::str(op.name, " changes the sizes of a tensor that was there before the call; do so outside."),
           op.name});
    }
  }
  for (const int hidden : hidden_writes(op.name)) add(op.in[hidden]);
}

// Memory of an empty tensor that an operator reads, although no operator has written to it: the program has,
// through a pointer. Its bytes become part of the recording.
void Recorder::note_host_values(const Operator& op) {
  const int now = static_cast<int>(program_.operators.size());
  for (size_t i = 0; i < op.in.size(); ++i) {
    const c10::Argument& declared = op.handle.schema().arguments()[i];
    if ((writes_argument(declared) && overwrites(op.name, declared)) || !reads_values(op.name, i)) continue;
    for (const int value : op.in[i].values) {
      if (value < 0) continue;
      Memory& memory = program_.memories[program_.values[value].memory];
      if (memory.origin != Origin::kMade || memory.has_values || memory.bytes == 0) continue;
      memory.host_filled = now;
      memory.has_values = true;
      memory.constant.assign(static_cast<const char*>(memory.address), memory.bytes);
    }
  }
}

// torch.tensor() writes numbers where no operator is seen, and lift_fresh is the first to see the memory.
// Memory that LibTorch did not allocate is an array of the program, as NumPy's: its numbers are constants where
// somebody looks at them in every call, which undeclared() asks for.
void Recorder::note_lifted(const Operator& op) {
  const int now = static_cast<int>(program_.operators.size()), value = op.in[0].values[0];
  if (value < 0) return;
  Memory& memory = program_.memories[program_.values[value].memory];
  if (memory.origin != Origin::kOutside || memory.first != now) return;
  const bool is_array = memory.raw->data_ptr().get_deleter() != c10::GetCPUAllocator()->raw_deleter();
  if (is_array && memory.bytes > kLargestArray) return;
  memory.is_array = is_array;
  any_array_ |= is_array;
  memory.origin = Origin::kMade;
  memory.host_filled = now;
  memory.has_values = true;
  memory.constant.assign(static_cast<const char*>(memory.address), memory.bytes);
  outside_seen_.erase(program_.outside.back().raw);
  program_.outside.pop_back();
}

namespace {

bool has_changed(const Memory& array) {
  return std::memcmp(array.address, array.constant.data(), array.constant.size()) != 0;
}

}  // namespace

void Recorder::check_arrays(const Operator& op) {
  if (!any_array_) return;
  for (const Argument& in : op.in) {
    for (const int value : in.values) {
      if (value < 0 || !program_.memory_of(value).is_array) continue;
      const int index = program_.values[value].memory;
      if (std::find(op.writes.begin(), op.writes.end(), index) != op.writes.end())
        return refuse(c10::str(op.name, " writes to an array of the program; write to a tensor."));
      if (has_changed(program_.memories[index]))
        return refuse(c10::str("An array changes after it has become a tensor that ", op.name,
                               " uses; change it before."));
    }
  }
}

void Recorder::check_arrays_left() {
  for (size_t i = 0; any_array_ && i < program_.memories.size(); ++i) {
    const Memory& memory = program_.memories[i];
    if (!memory.is_array) continue;
    const auto alive = memory.weak.lock();
    if (alive && has_changed(memory))
      return refuse("An array changes after it has become a tensor; change it before.");
    // The graph of a part may keep it.
    // Its bytes are then what an operator has left there, and not what somebody looks at before the call.
    const auto shares = [&](const Memory& other) {
      const auto *begin = static_cast<const char*>(memory.address),
                 *first = static_cast<const char*>(other.address);
      return (other.origin == Origin::kInput || other.origin == Origin::kOutside) &&
             begin < first + other.bytes && first < begin + memory.bytes;
    };
    if (std::any_of(program_.memories.begin(), program_.memories.end(), shares))
      return refuse(
          "An array that becomes a tensor shares memory with another tensor of the function; use that one.");
    if (alive && !program_.is_part())
      return refuse("A tensor on the memory of an array lives on after the call; keep or return its clone().");
  }
}

void Recorder::note_asked_storages(const Operator& op) {
  for (const Argument& in : op.in) {
    const Memory* memory = in.is_tensor() && in.values[0] >= 0 ? &program_.memory_of(in.values[0]) : nullptr;
    if (memory && memory->origin == Origin::kInput)
      program_.asked_storages.emplace_back(memory->input, memory->raw->nbytes());
  }
}

// A storage that grew or moved is not the memory that was noted. One that only the operator's arguments held is
// gone.
void Recorder::check_memory(const Operator& op) {
  const auto check = [&](const Argument& argument) {
    for (const int value : argument.values) {
      if (value < 0) continue;
      const Memory& memory = program_.memory_of(value);
      if (memory.origin == Origin::kInput || memory.weak.expired()) continue;
      if (memory.raw->nbytes() != memory.bytes || memory.raw->data() != memory.address) {
        refuse(c10::str(op.name, " gave a tensor other memory; copy values into the tensor instead (copy_)."));
      }
    }
  };
  for (const Argument& in : op.in) check(in);
  for (const Argument& out : op.out) check(out);
}

}  // namespace overdrive::replay
