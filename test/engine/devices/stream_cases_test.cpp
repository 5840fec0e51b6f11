// The streams of one gradient on its way from producer to consumer, in every case that the host's rules
// know. Both engines run each case; the kernels' order, the waits and the sums must be the same.
#include "test/support/caught.h"
#include "test/support/fake/device_contract.h"

namespace {

using namespace overdrive;
using test::variable_list;
using torch::Tensor;
namespace fake = test::fake;

enum class Where {
  kOnConsumer,  // the gradient is on the consumer's device (A)
  kOnProducer,  // on the producer's (B)
  kElsewhere,   // on neither (C)
};
// The host looks for stale captures since 2.13.
template <typename Context>
constexpr bool kSeesStaleCaptures = requires(Context& context) { context.setOverrideStaleCaptureStream(true); };
template <typename Context>
void override_stale_captures(Context& context, bool on) {
  if constexpr (kSeesStaleCaptures<Context>) context.setOverrideStaleCaptureStream(on);
}
enum class Capture { kNone, kOverride, kStale, kStaleDefaultStream };

struct Case {
  Where where;
  int producers;
  bool producer_has_stream;
  Capture capture;
};

std::string name_of(const Case& c) {
  static const char* const kWhere[] = {"OnConsumer", "OnProducer", "Elsewhere"};
  static const char* const kLastProducer[] = {"First", "Second", "Third"};
  static const char* const kCapture[] = {"", "Override", "Stale", "StaleDefaultStream"};
  return std::string(kWhere[static_cast<int>(c.where)]) + kLastProducer[c.producers - 1] +
         (c.producer_has_stream ? "" : "NoStream") + kCapture[static_cast<int>(c.capture)];
}

struct Outcome {
  test::Caught error;
  double value = 0;
  int consumer_stream = -1;
  std::vector<std::string> violations;
  uint64_t records = 0;
  uint64_t waits = 0;
  uint64_t recorded_streams = 0;

  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& o) {
    return out << o.error << " value " << o.value << " on stream " << o.consumer_stream << ", " << o.records
               << " events, " << o.waits << " waits, " << o.recorded_streams << " record_stream, "
               << testing::PrintToString(o.violations);
  }
};

// A node takes the stream that is current when it learns of its input.
void add_input_on(const test::NodePtr& node, int device, int stream) {
  const c10::StreamGuard guard(fake::stream(device, stream));
  node->add_input_metadata(torch::empty({2}, fake::options(device)));
}

test::NodePtr make_node(const std::string& name, test::edge_list edges, test::FunctionNode::Body body) {
  return base::make_node<test::FunctionNode>(name, std::move(edges), std::move(body));
}

constexpr int kConsumerStream = 3;
constexpr int kProducerDevice = 0;
constexpr int kConsumerDevice = 1;

// {root} --> {producer 1} --> {consumer}
//        --> {producer 2} -->
class Graph {
 public:
  explicit Graph(const Case& c) : c_(c) {
    consumer_device_ = c.where == Where::kOnConsumer ? kProducerDevice : kConsumerDevice;
    gradient_device_ = c.where == Where::kElsewhere ? 2 : kProducerDevice;
    const auto consumer = make_node("consumer", {}, [this](variable_list&& in) { return consume(in); });
    add_input_on(consumer, consumer_device_, c.capture == Capture::kStaleDefaultStream ? 0 : kConsumerStream);
    add_input_on(consumer, gradient_device_, 0);
    const uint32_t input = c.where == Where::kOnConsumer ? 0 : 1;
    test::edge_list to_producers;
    for (int i = 0; i < c.producers; ++i) {
      const auto producer = make_node("producer", {test::edge(consumer, input)},
                                      [this, i](variable_list&&) { return produce(i); });
      if (c.producer_has_stream) {
        add_input_on(producer, kProducerDevice, 1 + i);
      } else {
        producer->add_input_metadata(test::one());
      }
      to_producers.push_back(test::edge(producer));
    }
    root_ = make_node("root", to_producers,
                      [n = c.producers](variable_list&&) { return variable_list(static_cast<size_t>(n)); });
    // Where the producers run, so that both are ready before either begins: their order is settled.
    if (c.producer_has_stream) {
      add_input_on(root_, kProducerDevice, 0);
      gradient_ = torch::ones({2}, fake::options(kProducerDevice));
    } else {
      root_->add_input_metadata(test::one());
      gradient_ = test::one();
    }
  }

  Outcome run() {
    if (c_.capture != Capture::kNone) fake::set_capturing(kProducerDevice, 1, true);
    override_stale_captures(at::globalContext(), c_.capture == Capture::kOverride);
    fake::clear_violations();
    fake::reset_calls();
    Outcome outcome;
    outcome.error = test::message_of([&] { test::run({.roots = {test::edge(root_)}, .grads = {gradient_}}); });
    const fake::Calls calls = fake::calls();
    fake::set_capturing(kProducerDevice, 1, false);
    override_stale_captures(at::globalContext(), false);
    if (seen_.defined()) outcome.value = test::value_of(seen_.cpu());
    outcome.consumer_stream = stream_;
    outcome.violations = fake::violations();
    fake::clear_violations();
    outcome.records = calls.records;
    outcome.waits = calls.waits;
    outcome.recorded_streams = calls.recorded_streams;
    return outcome;
  }

 private:
  variable_list produce(int which) const {
    return {torch::full({2}, 3.0 + which, fake::options(gradient_device_)) * 1};
  }
  variable_list consume(const variable_list& in) {
    stream_ = static_cast<int>(fake::current_stream(consumer_device_).id());
    seen_ = (c_.where == Where::kOnConsumer ? in[0] : in[1].to(fake::device(consumer_device_))) * 1;
    return {};
  }

  const Case c_;
  int consumer_device_;
  int gradient_device_;
  int stream_ = -1;
  test::NodePtr root_;
  Tensor gradient_;
  Tensor seen_;
};

template <typename E>
Outcome outcome_on(const Case& c) {
  Outcome outcome = test::on<E>([&] { return Graph(c).run(); });
  return outcome;
}

// Every place of the gradient, first and later producers, with and without a stream, and every way in which the
// consumer's stream may be overridden.
std::vector<Case> all_cases() {
  std::vector<Capture> captures{Capture::kNone};
  if (kSeesStaleCaptures<at::Context>)
    captures.insert(captures.end(), {Capture::kOverride, Capture::kStale, Capture::kStaleDefaultStream});
  std::vector<Case> cases;
  for (const Where where : {Where::kOnConsumer, Where::kOnProducer, Where::kElsewhere}) {
    for (const int producers : {1, 2, 3}) {
      for (const bool has_stream : {true, false}) {
        for (const Capture capture : captures) cases.push_back({where, producers, has_stream, capture});
      }
    }
  }
  return cases;
}

class StreamCases : public test::DeviceContractBase, public testing::WithParamInterface<Case> {};

TEST_P(StreamCases, AreTheSameOnBothEngines) {
  const Case& c = GetParam();
  const Outcome stock = outcome_on<test::StockEngine>(c);
  if (c.capture == Capture::kNone) {
    EXPECT_EQ(stock.error, test::Caught{});
    constexpr double kSums[] = {6, 14, 24};
    EXPECT_EQ(stock.value, kSums[c.producers - 1]);
    EXPECT_EQ(stock.consumer_stream, kConsumerStream);
  }
  EXPECT_EQ(outcome_on<test::Overdrive>(c), stock);
}

// The same by force of the checker alone: without waits, it has something to say in each ordered case.
TEST_P(StreamCases, NeedTheirWaits) {
  const Case& c = GetParam();
  if (c.capture != Capture::kNone || !c.producer_has_stream || c.where != Where::kOnConsumer)
    GTEST_SKIP() << "the streams of this case happen to be ordered without an event";
  fake::ignore_waits(true);
  const Outcome ours = outcome_on<test::Overdrive>(c);
  fake::ignore_waits(false);
  EXPECT_THAT(ours.violations, testing::Not(testing::IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(All, StreamCases, testing::ValuesIn(all_cases()),
                         [](const auto& row) { return name_of(row.param); });

// The backward ends on a leaf's stream that records a graph, which the caller's does not.
test::Caught error_of_a_leaf_that_records(bool overridden) {
  const Tensor x = test::device_leaf(1);
  fake::wait_for(fake::stream(1, 2), fake::stream(1, 0));
  Tensor y;
  {
    const c10::StreamGuard guard(fake::stream(1, 2));
    y = (x * 3).sum();
  }
  const Tensor gradient = torch::ones({}, fake::options(1));
  override_stale_captures(at::globalContext(), overridden);
  fake::set_capturing(1, 2, true);
  const test::Caught error = test::message_of([&] { y.backward(gradient); });
  fake::set_capturing(1, 2, false);
  override_stale_captures(at::globalContext(), false);
  fake::clear_violations();
  return error;
}

class StreamsOfLeaves : public test::DeviceContractBase {};

TEST_F(StreamsOfLeaves, ThatRecordAreTheSameOnBothEngines) {
  for (const bool overridden : {false, true}) {
    const auto error = [&] { return error_of_a_leaf_that_records(overridden); };
    EXPECT_EQ(test::on<test::Overdrive>(error), test::on<test::StockEngine>(error));
  }
}

}  // namespace
