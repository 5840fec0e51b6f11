// Which numbers an operator of a recording has from the program. LibTorch makes numbers of others, too: the
// gradient of lerp() is a product by 1 - weight, and a loss with smoothed labels has one inside of it. Such a
// number may have the bits of another number of the call in two recordings, and others in a third call. So a
// number is the program's where the operator that the program called was given it; in the backward of an
// operator, where that operator was. Follows one recording on its thread, by LibTorch's observers.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace overdrive::replay {

class PassedNumbers {
 public:
  // A call by the program, or the backward of an operator; over when it is destroyed.
  class Call : public at::ObserverContext {
   public:
    explicit Call(PassedNumbers& owner) : owner_(owner) {}
    ~Call() override { owner_.calls_.pop_back(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    PassedNumbers& owner_;
  };

  // Null: the operator is a part of one that the program called.
  std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function);
  std::unique_ptr<at::ObserverContext> begin_node(const at::RecordFunction& function);

  // Whether the operator under way has the number from the program.
  bool has(double number) const;
  // The operator under way has it, and so has its backward.
  void keep_for_backward(double number);

 private:
  struct Numbers {
    // Whether operators in it are LibTorch's, and not the program's.
    bool is_of_libtorch;
    std::vector<double> given;
  };

  std::vector<Numbers> calls_;
  // By the sequence number of the node that the operator's graph has.
  std::unordered_map<uint64_t, std::vector<double>> of_nodes_;
};

}  // namespace overdrive::replay
