# The contract: what a program may rely on, typed over stock and ours. A few large
# programs, because every translation unit pays for LibTorch's headers.
overdrive_add_test(engine_contract_graph_test
  SOURCES contract_order_test.cpp contract_one_node_test.cpp contract_pruning_test.cpp
          contract_validation_test.cpp contract_frame_test.cpp
  LIBS overdrive_test_support LABELS engine contract)
overdrive_add_test(engine_contract_state_test
  SOURCES contract_graph_flags_test.cpp contract_callbacks_test.cpp contract_errors_test.cpp
          contract_thread_state_test.cpp contract_lifetime_test.cpp
  LIBS overdrive_test_support LABELS engine contract)

# Every backward inside a host frame, also where it could be left out.
foreach(group graph state)
  add_test(NAME engine_contract_${group}_framed_test
    COMMAND engine_contract_${group}_test "--gtest_filter=*/Overdrive.*")
  set_tests_properties(engine_contract_${group}_framed_test PROPERTIES
    TIMEOUT 120 LABELS "engine;contract" ENVIRONMENT OVERDRIVE_FRAME=always)
endforeach()
