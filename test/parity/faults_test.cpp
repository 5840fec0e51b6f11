// Ten mistakes are switched on, one after the other, in a build of the engine that has them, and
// the fuzzer must find each. What it can find is what it can vouch for.
#define OVERDRIVE_TEST_FAULTS  // as in the library that this test links
#include "engine/base/fault.h"
#include "engine/engine.h"
#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/support/pch.h"

namespace overdrive::fuzz {
namespace {

using base::Fault;

constexpr uint64_t kPrograms = 500;

Contender with(Fault fault) {
  return {"faulty", [fault] {
            overdrive::install();
            base::active_fault() = fault;
          }};
}

class Faults : public testing::TestWithParam<int> {};

TEST_P(Faults, IsFoundWithinFiveHundredPrograms) {
  prepare();
  const auto fault = static_cast<Fault>(GetParam());
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    stock().enter();
    const Program program = generate(seed);
    if (!compare(program, stock(), with(fault))) continue;
    if (compare(program, stock(), with(Fault::kNone))) continue;  // not the fault's doing
    RecordProperty("seed", static_cast<int>(seed));
    return;
  }
  FAIL() << "no program of " << kPrograms << " shows it";
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::Range(1, static_cast<int>(Fault::kHowMany)),
                         [](const auto& fault) {
                           return std::string(base::kFaultNames[static_cast<size_t>(fault.param)]);
                         });

}  // namespace
}  // namespace overdrive::fuzz
