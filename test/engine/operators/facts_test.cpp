// The table of operators against LibTorch's dispatcher: each listed name exists, and each operator of aten has
// the class that golden_operators.txt shows. OVERDRIVE_WRITE_GOLDEN=1 writes that file anew.
#include "engine/operators/facts.h"
#include "test/support/pch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace overdrive::test {
namespace {

using engine::facts_of;
using engine::OperatorFacts;
using engine::Throws;

// The golden table names the operators of one version.
constexpr int kMinor = 13;

std::string text_of(const OperatorFacts& facts) {
  static const std::map<Throws, std::string> throws{{Throws::kUnknown, "unknown"},
                                                    {Throws::kNever, "never"},
                                                    {Throws::kOnData, "data"},
                                                    {Throws::kOnIntegers, "integers"}};
  return "throws=" + throws.at(facts.throws) + (facts.moves_memory ? " moves_memory" : "") +
         (facts.in_files ? " in_files" : "") + (facts.takes_any_number ? " any_number" : "");
}

// The names that a recording can meet: those with a kernel of the CPU's, and not those that LibTorch makes of
// others above autograd. Overloads that differ from their operator have a line of their own.
std::map<std::string, std::string> classes() {
  std::map<std::string, std::string> result;
  std::vector<std::string> overloads;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto handle = dispatcher.findOp(name);
    if (!handle || !handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) ||
        handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      continue;
    }
    const std::string full = c10::toString(name);
    result[name.name] = text_of(facts_of(name.name));
    if (text_of(facts_of(full)) != result[name.name]) overloads.push_back(full);
  }
  for (const std::string& full : overloads) result[full] = text_of(facts_of(full));
  return result;
}

TEST(OperatorFacts, EachListedNameIsAnOperator) {
  std::set<std::string> known;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    known.insert(name.name);
    known.insert(c10::toString(name));
  }
  std::istringstream names(engine::listed_operators());
  for (std::string name; names >> name;) {
    // The updates of optimizers are registered when a step is captured from Python.
    if (name.starts_with("overdrive::")) continue;
    if (name == "cholesky" && TORCH_VERSION_MINOR > kMinor) continue;  // gone in 2.15
    EXPECT_TRUE(known.contains("aten::" + name) || known.contains("aten::" + name + "_")) << name;
  }
}

TEST(OperatorFacts, AnUnknownOperatorIsOfTheCarefulClass) {
  EXPECT_EQ(facts_of("aten::no_such_operator").throws, Throws::kUnknown);
  EXPECT_EQ(facts_of("mine::add").throws, Throws::kUnknown);
}

TEST(OperatorFacts, AFormInPlaceOrOfAListThrowsAsItsOperatorDoes) {
  for (const char* name : {"aten::add", "aten::add.Tensor", "aten::add_.Scalar", "aten::_foreach_add_.List"}) {
    EXPECT_EQ(facts_of(name).throws, Throws::kNever) << name;
  }
  EXPECT_EQ(facts_of("aten::bernoulli_.float").throws, Throws::kNever);
  EXPECT_EQ(facts_of("aten::bernoulli_.Tensor").throws, Throws::kOnData);
  EXPECT_EQ(facts_of("aten::normal_").throws, Throws::kNever);
  EXPECT_EQ(facts_of("aten::normal.Tensor_Tensor").throws, Throws::kOnData);
}

TEST(OperatorFacts, EachOperatorOfAtenHasTheClassOfTheGoldenTable) {
  if (TORCH_VERSION_MINOR != kMinor) GTEST_SKIP() << "the golden table is of LibTorch 2." << kMinor;
  const auto now = classes();
  if (std::getenv("OVERDRIVE_WRITE_GOLDEN")) {
    std::ofstream file(OVERDRIVE_GOLDEN_OPERATORS);
    for (const auto& [name, text] : now) file << name << ' ' << text << '\n';
  }
  std::map<std::string, std::string> golden;
  std::ifstream file(OVERDRIVE_GOLDEN_OPERATORS);
  for (std::string line; std::getline(file, line);) {
    golden[line.substr(0, line.find(' '))] = line.substr(line.find(' ') + 1);
  }
  for (const auto& [name, text] : now) {
    EXPECT_EQ(golden.contains(name) ? golden[name] : "not there", text)
        << name
        << ": look at what it does, give it a row in engine/operators/facts.cpp, and write the table anew";
  }
  for (const auto& [name, text] : golden) EXPECT_TRUE(now.contains(name)) << name << " is no operator";
}

}  // namespace
}  // namespace overdrive::test
