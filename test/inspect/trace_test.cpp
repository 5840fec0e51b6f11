// What a trace holds, and that it is whole JSON whatever happens.
#include "inspect/inspect.h"

#include "test/inspect/trace_reader.h"
#include "test/support/child.h"
#include "test/support/contract.h"
#include "test/support/error_of.h"
#include "test/support/graph.h"

#include <sys/wait.h>

#include <filesystem>
#include <stdexcept>
#include <thread>

namespace {

using namespace overdrive;
using test::broken_rule;
using test::edge;
using test::error_of;
using test::make_node;
using test::TraceOnDisk;
using torch::Tensor;
using Names = std::vector<std::string>;

class Traces : public testing::Test {
 protected:
  const ScopedInstall engine_;
  TraceOnDisk file_{testing::UnitTest::GetInstance()->current_test_info()->name()};
};

Tensor leaf(at::IntArrayRef sizes = {4}) { return torch::ones(sizes, torch::requires_grad()); }

TEST_F(Traces, HoldsEveryNodeInTheOrderInWhichItRan) {
  // {x} --Exp--> --Mul x--> --Sum--> {loss}
  const Tensor x = leaf();
  {
    Trace trace(file_.path, {.forward = false});
    (x.exp() * x).sum().backward();
  }
  EXPECT_EQ(file_.node_names(),
            (Names{"SumBackward0", "MulBackward0", "ExpBackward0", "torch::autograd::AccumulateGrad"}));
  EXPECT_EQ(broken_rule(file_), "");
  const auto nodes = file_.nodes();
  EXPECT_EQ(nodes[0]["args"]["in"], 4);
  EXPECT_EQ(nodes[0]["args"]["out"], 16);
  EXPECT_EQ(nodes[1]["args"]["out"], 32);
  EXPECT_FALSE(nodes[3]["args"].contains("seq"));
  for (const auto& node : nodes) {
    EXPECT_GE(node["args"]["wait"].get<double>(), 0);
    EXPECT_GE(node["args"]["live"].get<int64_t>(), 0);
  }
  const auto backwards = file_.slices({"backward"});
  ASSERT_EQ(backwards.size(), 1u);
  EXPECT_EQ(backwards[0]["args"]["nodes"], 4);
}

TEST_F(Traces, TellsNativeNodesFromTheHosts) {
  const Tensor x = leaf();
  reset_stats();
  {
    Trace trace(file_.path);
    std::get<0>(x.exp().sort()).sum().backward();
  }
  std::map<std::string, std::string> who;
  for (const auto& node : file_.nodes()) who[node["name"]] = node["cat"];
  uint64_t own = 0;
  for (const auto& [type, count] : stats().own_nodes) own += count;
  EXPECT_GT(own, 0u) << "a trace must not keep native nodes from running";
  EXPECT_EQ(std::count_if(who.begin(), who.end(), [](const auto& node) { return node.second == "own"; }), own);
  EXPECT_EQ(who["SortBackward0"], "host");
}

TEST_F(Traces, DrawsAnArrowFromEachOperatorToItsNode) {
  const Tensor x = leaf({2, 3}), w = leaf({3, 5});
  {
    Trace trace(file_.path);
    at::linear(x, w.t()).relu().sum().backward();
  }
  EXPECT_EQ(broken_rule(file_), "");
  std::map<std::string, std::string> operators;
  for (const auto& op : file_.slices({"forward"})) {
    if (!op.value("flow_out", false)) continue;
    const auto [known, is_new] = operators.emplace(op["bind_id"], op["name"]);
    EXPECT_TRUE(is_new) << known->second << " and " << op["name"] << " inside each other claim one node";
  }
  std::map<std::string, std::string> made_by;
  for (const auto& node : file_.nodes()) {
    if (node.value("flow_in", false)) made_by[node["name"]] = operators.at(node["bind_id"]);
  }
  EXPECT_EQ(made_by["SumBackward0"], "aten::sum");
  EXPECT_EQ(made_by["ReluBackward0"], "aten::relu");
  EXPECT_EQ(made_by["MmBackward0"], "aten::mm");
  EXPECT_EQ(made_by["TBackward0"], "aten::t");
  EXPECT_FALSE(made_by.contains("torch::autograd::AccumulateGrad"));
}

TEST_F(Traces, AreWholeAfterAnErrorInTheMiddle) {
  const Tensor x = leaf({1});
  const auto bad = make_node("bad \"node\"\n\xff", {test::accumulator(x)},
                             [](torch::autograd::variable_list&&) -> torch::autograd::variable_list {
                               throw std::out_of_range("no");
                             });
  const auto good = make_node("good", {edge(bad)});
  Trace trace(file_.path);
  EXPECT_THROW(test::run({.roots = {edge(good)}}), std::out_of_range);
  x.exp().sum().backward();
  trace.close();
  EXPECT_EQ(broken_rule(file_), "");
  const auto nodes = file_.nodes();
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[1]["name"], "bad \"node\"\n?");
  EXPECT_EQ(nodes[1]["args"]["error"], 1);
  EXPECT_EQ(file_.slices({"backward"})[0]["args"]["error"], 1);
  EXPECT_FALSE(file_.slices({"backward"})[1]["args"].contains("error"));
}

// The second watch throws before the node: the first has heard of the node's begin and hears of its end.
TEST_F(Traces, HoldTheNodeBeforeWhichAnotherWatchThrew) {
  const Tensor loss = leaf().exp().sum();
  {
    Trace trace(file_.path);
    const auto refuses = on_backward({.before_node = [](const auto& at, const auto&) {
      if (at.node.name() == "ExpBackward0") throw std::runtime_error("not this one");
    }});
    EXPECT_THROW(loss.backward(), std::runtime_error);
  }
  EXPECT_EQ(file_.node_names(), (Names{"SumBackward0", "ExpBackward0"}));
  EXPECT_EQ(broken_rule(file_), "");
}

TEST_F(Traces, ShowNestedBackwardsInsideTheNodeThatCalledThem) {
  const Tensor x = leaf({1}), y = leaf({1});
  const auto outer = make_node("outer", {test::accumulator(x)}, [&](torch::autograd::variable_list&& in) {
    const at::AutoGradMode grad(true);
    y.exp().sum().backward();
    return std::move(in);
  });
  {
    Trace trace(file_.path);
    test::run({.roots = {edge(outer)}});
  }
  EXPECT_EQ(broken_rule(file_), "");
  EXPECT_EQ(file_.node_names(), (Names{"outer", "SumBackward0", "ExpBackward0",
                                       "torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad"}));
  const auto nodes = file_.nodes();
  const double end = nodes[0]["ts"].get<double>() + nodes[0]["dur"].get<double>();
  EXPECT_LE(nodes[3]["ts"].get<double>() + nodes[3]["dur"].get<double>(), end + 0.002);
  EXPECT_GE(nodes[4]["ts"].get<double>(), end - 0.002);
}

TEST_F(Traces, TwoAtOnceHoldWhatRanWhileTheyWereOpen) {
  TraceOnDisk second("second");
  const Tensor x = leaf();
  Trace first_trace(file_.path);
  x.exp().sum().backward();
  {
    Trace second_trace(second.path);
    x.sin().sum().backward();
  }
  x.cos().sum().backward();
  first_trace.close();
  EXPECT_EQ(file_.nodes().size(), 9u);
  EXPECT_EQ(second.node_names(), (Names{"SumBackward0", "SinBackward0", "torch::autograd::AccumulateGrad"}));
  EXPECT_EQ(broken_rule(file_) + broken_rule(second), "");
}

TEST_F(Traces, HoldTheBackwardsOfEveryThread) {
  {
    Trace trace(file_.path);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([] {
        const Tensor x = leaf();
        for (int k = 0; k < 50; ++k) x.exp().sum().backward();
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(broken_rule(file_), "");
  EXPECT_EQ(file_.nodes().size(), 450u);
  std::set<int64_t> ids;
  for (const auto& node : file_.nodes()) ids.insert(node["tid"].get<int64_t>());
  EXPECT_EQ(ids.size(), 3u);
}

TEST_F(Traces, TakeUnder200BytesANodeAndABoundedRing) {
  constexpr int kNodes = 100'000;  // more than a ring
  Tensor x = leaf({1}), y = x;
  for (int i = 0; i < kNodes; ++i) y = y * 2;
  {
    Trace trace(file_.path, {.forward = false});
    y.backward();
  }
  std::ifstream in(file_.path);
  const auto nodes = std::count(std::istreambuf_iterator<char>(in), {}, '\n') - 4;
  EXPECT_GE(nodes, kNodes);
  EXPECT_LT(file_.bytes() / nodes, 200);
}

TEST_F(Traces, AreWholeWhenTheProcessEndsWithoutUnwinding) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  ASSERT_TRUE(test::holds_in_a_child([&] {
    auto* trace = new Trace(file_.path, {.forward = false});
    const Tensor x = leaf();
    for (int k = 0; k < 1'000; ++k) x.exp().sum().backward();
    (void)trace;
    return true;
  }));
  EXPECT_GT(file_.nodes().size(), 0u);
}

TEST_F(Traces, RefuseAFileThatCannotBeWritten) {
  EXPECT_EQ(error_of([] { Trace trace("/nowhere/at/all.json"); }),
            "The file of a trace is \"/nowhere/at/all.json\", but must be a file that can be written: No such "
            "file or "
            "directory.");
  const ScopedInstall again;
  const Tensor x = leaf();
  x.exp().sum().backward();  // nothing is left behind
  EXPECT_TRUE(torch::equal(x.grad(), x.exp()));
}

TEST_F(Traces, FollowNoLinkInAFolderThatOthersMayWrite) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("overdrive-links-" + std::to_string(getpid()));
  fs::create_directory(folder);
  const auto gone = std::shared_ptr<void>(nullptr, [&](void*) { fs::remove_all(folder); });
  std::ofstream(folder / "target") << "kept";
  fs::create_symlink(folder / "target", folder / "link");
  fs::permissions(folder, fs::perms::all);
  EXPECT_THAT(error_of([&] { Trace trace((folder / "link").string()); }), testing::HasSubstr("symbolic links"));
  EXPECT_EQ(fs::file_size(folder / "target"), 4u);
  fs::permissions(folder, fs::perms::owner_all);
  { const Trace trace((folder / "link").string()); }
  EXPECT_GT(fs::file_size(folder / "target"), 4u);
}

TEST_F(Traces, TellWhenTheDiskIsFull) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "the system has no /dev/full";
  EXPECT_THAT(error_of([] { Trace trace("/dev/full"); }),
              testing::HasSubstr("but must be a file that can be written: "));
}

TEST_F(Traces, NeedTheEngine) {
  ASSERT_TRUE(uninstall());
  EXPECT_THAT(error_of([&] { Trace trace(file_.path); }),
              testing::HasSubstr("Call overdrive::install() first."));
  install();
}

TEST_F(Traces, LeaveTheBitsAsTheyAre) {
  const Tensor x = torch::randn({16, 16}, torch::requires_grad());
  const auto gradient = [&] {
    x.mutable_grad() = Tensor();
    (x.matmul(x).tanh() + x).pow(2).sum().backward();
    return x.grad().clone();
  };
  const Tensor plain = gradient();
  Tensor traced;
  {
    Trace trace(file_.path);
    traced = gradient();
  }
  EXPECT_TRUE(torch::equal(plain, traced));
}

}  // namespace
