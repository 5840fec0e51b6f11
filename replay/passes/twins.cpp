// The same step twice is one step: equal operators on equal values, and nobody writes to their results. The
// second one's result is then that of the first, also where values of it are views of the result.
#include "replay/passes/memory_writes.h"
#include "replay/passes/operator_kind.h"
#include "replay/passes/passes.h"
#include "replay/record/compare.h"
#include "replay/record/operator_writes.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace overdrive::replay {

namespace {

template <typename T>
void append(std::string& key, const T& field) {
  key.append(reinterpret_cast<const char*>(&field), sizeof(T));
}

// Numbers of the program, which have their bytes from the recording.
bool is_number(const Memory& memory) {
  return memory.origin == Origin::kConstant ||
         (memory.origin == Origin::kMade && memory.host_filled >= 0 && !memory.written && !memory.lives);
}

class TwinSearch {
 public:
  TwinSearch(const Program& program, Passes& passes)
      : program_(program), passes_(passes), writes_(program), last_uses_(passes.last_uses(program)) {
    std::unordered_map<std::string, int> known;
    for (size_t i = 0; i < program.memories.size(); ++i) {
      const Memory& memory = program.memories[i];
      std::string key;
      append(key, memory.origin);
      append(key, is_number(memory));
      append(key, memory.number >= 0);
      if (memory.origin == Origin::kInput) {
        append(key, memory.input);
      } else if (memory.number >= 0) {
        append(key, memory.number);
      } else if (is_number(memory)) {
        key += memory.constant;
      } else {
        append(key, i);
      }
      same_.push_back(known.emplace(std::move(key), static_cast<int>(i)).first->second);
    }
  }

  void look_at(size_t op) {
    const Operator& each = program_.operators[op];
    std::vector<int>& others = seen_[key_of(op)];
    for (const int other : others) {
      if (!same_constants(program_.operators[other], each) || !may_stand_for(other, op)) continue;
      merge(other, op);
      return;
    }
    others.push_back(static_cast<int>(op));
  }

 private:
  // Of the operator and of its tensors: the same memory with the same number of writes before, and the same
  // elements of it.
  std::string key_of(size_t op) const {
    const Operator& each = program_.operators[op];
    const bool ignores = ignores_autograd(each);
    std::string key = each.name;
    append(key, each.grad_mode || ignores);
    for (size_t i = 0; i < each.in.size(); ++i) {
      append(key, each.in[i].kind);
      append(key, each.in[i].values.size());
      for (const int value : each.in[i].values)
        append_value(key, value, static_cast<int>(op), reads_values(each.name, i), ignores);
    }
    return key;
  }

  void append_value(std::string& key, int value, int op, bool reads, bool ignores_autograd) const {
    append(key, value < 0);
    if (value < 0) return;
    const Value& each = program_.values[value];
    const int memory = passes_.lies_in[each.memory];
    if (reads) {
      append(key, same_[memory]);
      append(key, is_number(program_.memories[memory]) ? 0 : writes_.version(memory, op));
      append(key, each.offset);
    }
    append(key, each.type);
    append(key, each.wrapped);
    append(key, each.requires_grad && !ignores_autograd);
    append(key, each.sizes.size());
    for (const int64_t size : each.sizes) append(key, size);
    for (const int64_t stride : each.strides) append(key, stride);
  }

  static bool same_constants(const Operator& a, const Operator& b) {
    for (size_t i = 0; i < a.in.size(); ++i) {
      if (a.in[i].kind == Argument::Kind::kConstant && !same_constant(a.in[i].constant, b.in[i].constant))
        return false;
    }
    return true;
  }

  // Each result lies alike in its memory. Nobody writes to the second one's, nor to the first one's until the
  // second one's last use. What lives on has memory of its own.
  bool may_stand_for(int first, size_t second) const {
    const Operator &a = program_.operators[first], &b = program_.operators[second];
    if (a.out.size() != b.out.size() || !is_there_for(first, second)) return false;
    for (size_t i = 0; i < a.out.size(); ++i) {
      if (a.out[i].kind != b.out[i].kind) return false;
      if (!a.out[i].is_tensor()) continue;
      const Value &x = program_.values[a.out[i].values[0]], &y = program_.values[b.out[i].values[0]];
      const Memory &of_a = program_.memories[x.memory], &of_b = program_.memories[y.memory];
      if (!is_passing(program_, y.memory) || of_b.written || of_b.host_filled >= 0 || of_a.bytes != of_b.bytes)
        return false;
      if (x.offset != y.offset || x.sizes != y.sizes || x.strides != y.strides || x.type != y.type)
        return false;
      const int last = last_use_of_both(x.memory, y.memory);
      if (writes_.written_between(x.memory, first, last)) return false;
    }
    return true;
  }

  // Of a part's backwards one runs, and not the others.
  bool is_there_for(int first, size_t second) const {
    const int made_in = program_.segment_of(first);
    return made_in == 0 || made_in == program_.segment_of(static_cast<int>(second));
  }

  int last_use_of_both(int first, int second) const {
    const int begins = program_.backward_begins;
    const bool crosses = program_.is_part() && program_.memories[first].first < begins &&
                         program_.memories[second].last >= begins;
    return crosses ? static_cast<int>(program_.operators.size()) : last_uses_[second];
  }

  void merge(int first, size_t second) {
    const Operator &a = program_.operators[first], &b = program_.operators[second];
    for (size_t i = 0; i < a.out.size(); ++i) {
      if (!a.out[i].is_tensor()) continue;
      passes_.lies_in[program_.values[b.out[i].values[0]].memory] = program_.values[a.out[i].values[0]].memory;
    }
    passes_.fates[second] = Fate::kTwin;
    passes_.twin_of[second] = first;
  }

  const Program& program_;
  Passes& passes_;
  const MemoryWrites writes_;
  const std::vector<int> last_uses_;
  // Of each memory: the first one that has the same bytes as long as nobody writes.
  std::vector<int> same_;
  std::unordered_map<std::string, std::vector<int>> seen_;
};

}  // namespace

void find_twins(const Program& program, const KeepsOperator& keeps, Passes& passes) {
  TwinSearch search(program, passes);
  for (size_t i = 0; i < program.operators.size(); ++i) {
    if (passes.runs(i) && !keeps(i) && is_function(program, program.operators[i])) search.look_at(i);
  }
}

}  // namespace overdrive::replay
