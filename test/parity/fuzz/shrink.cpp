#include "test/parity/fuzz/shrink.h"

#include <algorithm>

namespace overdrive::fuzz {
namespace {

class Shrinker {
 public:
  Shrinker(Program program, const std::function<bool(const Program&)>& differs, int tries)
      : best_(std::move(program)), differs_(differs), tries_left_(tries) {}

  Program run() {
    for (int before = -1; before != size() && tries_left_ > 0;) {
      before = size();
      drop_from(best_.statements);
      bypass();
      simplify();
    }
    return std::move(best_);
  }

 private:
  int size() const { return size_of(best_.statements); }

  // True when the program, changed in place by the caller, still differs; else the caller undoes it.
  bool still_differs() { return tries_left_-- > 0 && differs_(best_); }

  // `list` is a part of best_.
  void drop_from(std::vector<Statement>& list) {
    for (size_t chunk = std::max<size_t>(list.size() / 2, 1); chunk > 0; chunk /= 2) {
      for (size_t end = list.size(); end > 0 && tries_left_ > 0;) {
        const size_t begin = end > chunk ? end - chunk : 0;
        const auto first = list.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = list.begin() + static_cast<std::ptrdiff_t>(std::min(end, list.size()));
        std::vector<Statement> kept(first, last);
        list.erase(first, last);
        if (!still_differs())
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(begin), kept.begin(), kept.end());
        end = begin;
      }
    }
    for (Statement& s : list) {
      if (!s.body.empty()) drop_from(s.body);
    }
  }

  // Puts an op's operand in the place of its result: drops a link of a chain.
  void bypass() {
    for (size_t i = best_.statements.size(); i-- > 0 && tries_left_ > 0;) {
      const Statement op = best_.statements[i];
      if (op.what != What::kOp) continue;
      for (int operand : op.from) {
        Program before = best_;
        best_.statements.erase(best_.statements.begin() + static_cast<std::ptrdiff_t>(i));
        rename(best_.statements, op.to, operand);
        if (still_differs()) break;
        best_ = std::move(before);
      }
    }
  }

  static void rename(std::vector<Statement>& list, int from, int to) {
    for (Statement& s : list) {
      for (auto* slots : {&s.from, &s.call.gradients, &s.call.inputs})
        std::replace(slots->begin(), slots->end(), from, to);
      if (s.given == from) s.given = to;
      rename(s.body, from, to);
    }
  }

  template <typename T>
  void try_value(T& field, T plain) {
    if (field == plain) return;
    std::swap(field, plain);
    if (!still_differs()) std::swap(field, plain);
  }

  void simplify() {
    try_value(best_.watch.pre_hooks, false);
    try_value(best_.watch.post_hooks, false);
    try_value(best_.watch.events, false);
    try_value(best_.watch.traced, false);
    try_value(best_.watch.anomaly, false);
    try_value(best_.watch.lifetimes, false);
    simplify(best_.statements);
  }

  void simplify(std::vector<Statement>& list) {
    for (Statement& s : list) {
      try_value(s.lane, 0);
      if (s.what == What::kLeaf) {
        try_value(s.layout, 0);
        try_value(s.dtype, 0);
        try_value(s.shape, 0);
      }
      if (s.what == What::kHook) try_value(s.gives, Gives::kNothing);
      if (s.what == What::kBackward) simplify_call(s);
      simplify(s.body);
    }
  }

  void simplify_call(Statement& s) {
    try_value(s.call.create_graph, false);
    try_value(s.call.keep_graph, Flag::kDefault);
    for (auto* list : {&s.from, &s.call.inputs, &s.call.gradients}) {
      for (size_t i = list->size(); i-- > 0 && list->size() > 1;) {
        const int kept = (*list)[i];
        list->erase(list->begin() + static_cast<std::ptrdiff_t>(i));
        if (!still_differs()) list->insert(list->begin() + static_cast<std::ptrdiff_t>(i), kept);
      }
    }
  }

  Program best_;
  const std::function<bool(const Program&)>& differs_;
  int tries_left_;
};

}  // namespace

Program shrink(const Program& program, const std::function<bool(const Program&)>& differs, int most_tries) {
  return Shrinker(program, differs, most_tries).run();
}

}  // namespace overdrive::fuzz
