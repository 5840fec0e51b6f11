// What LibTorch's own profiler, Kineto, writes down about a backward: the same events as on stock, and on ours
// the pair that encloses an outermost backward.
#include "test/support/contract.h"

#include <torch/csrc/autograd/profiler_kineto.h>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Kineto);

namespace profiler = torch::autograd::profiler;

// Of each event its name, scope and shapes; of a node also its sequence number, counted from the smallest, and
// whether it has a forward thread.
using Recorded = std::multiset<std::string>;

bool encloses(const std::string& name) { return name.find("overdrive::backward") != name.npos; }

bool is_node(const profiler::KinetoEvent& event) {
  return static_cast<at::RecordScope>(event.scope()) == at::RecordScope::BACKWARD_FUNCTION &&
         event.sequenceNr() >= 0 && !encloses(event.name());
}

Recorded recorded_while(const std::function<void()>& body) {
  const profiler::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                        /*report_input_shapes=*/true);
  const std::set activities{torch::profiler::impl::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  body();
  const auto result = profiler::disableProfiler();
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& event : result->events()) {
    if (is_node(event)) first = std::min(first, event.sequenceNr());
  }
  Recorded recorded;
  for (const auto& event : result->events()) {
    const auto number = is_node(event) ? event.sequenceNr() - first : -1;
    recorded.insert(c10::str(event.name(), " scope ", static_cast<int>(event.scope()), " number ", number,
                             event.fwdThreadId() != 0 ? " of a forward" : "", " shapes ", event.shapes()));
  }
  return recorded;
}

TYPED_TEST(Kineto, RecordsTheEventsOfStock) {
  this->allow_new_threads();  // the profiler keeps one of its own
  const auto train = [] {
    auto x = torch::ones({2, 2}, torch::requires_grad());
    (torch::relu(x.matmul(x) * 2) + x).sum().backward();
    torch::autograd::grad({(x * x).sum()}, {x});
  };
  auto seen = recorded_while(train);
  EXPECT_EQ(std::erase_if(seen, encloses), TypeParam::kOverdrive ? 4u : 0u) << "a pair for each backward";
  EXPECT_TRUE(std::any_of(seen.begin(), seen.end(),
                          [](const std::string& event) { return event.starts_with("MmBackward0"); }));
  EXPECT_EQ(seen, on<StockEngine>([&] { return recorded_while(train); }));
}

}  // namespace
}  // namespace overdrive::test
