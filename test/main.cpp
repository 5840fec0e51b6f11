#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

// OVERDRIVE_TEST_LEAVE_OUT: patterns of cases that cannot hold under a setting of test/configs/. CTest gives
// filters of its own, so that these are added to them.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* cases = std::getenv("OVERDRIVE_TEST_LEAVE_OUT"); cases != nullptr && *cases != '\0') {
    std::string filter = GTEST_FLAG_GET(filter);
    filter.append(filter.find('-') == std::string::npos ? "-" : ":").append(cases);
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
