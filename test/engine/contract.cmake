# The contract: what a program may rely on, typed over stock and ours. A few large
# programs, because every translation unit pays for LibTorch's headers.
overdrive_add_test(engine_contract_graph_test
  SOURCES contract_order_test.cpp contract_one_node_test.cpp contract_pruning_test.cpp
          contract_validation_test.cpp contract_frame_test.cpp
  LIBS overdrive_test_support LABELS engine contract)
overdrive_add_test(engine_contract_state_test
  SOURCES contract_graph_flags_test.cpp contract_callbacks_test.cpp contract_errors_test.cpp
          contract_thread_state_test.cpp contract_lifetime_test.cpp contract_foreign_task_test.cpp
  LIBS overdrive_test_support LABELS engine contract fast-asan)
overdrive_add_test(engine_contract_watch_test
  SOURCES contract_anomaly_test.cpp contract_profiler_test.cpp contract_kineto_test.cpp
  LIBS overdrive_test_support LABELS engine contract)
overdrive_add_test(engine_contract_sums_test
  SOURCES contract_sums_test.cpp contract_other_tensors_test.cpp
  LIBS overdrive_test_support LABELS engine contract)
overdrive_add_test(engine_contract_threads_test
  SOURCES contract_nested_test.cpp contract_threads_test.cpp contract_thread_end_test.cpp
          contract_size_test.cpp
  LIBS overdrive_test_support LABELS engine contract fast-tsan ENV OMP_NUM_THREADS=1 TIMEOUT 600)

# The same graphs with RLIMIT_STACK at 256 KiB: the main thread's stack, and every new thread's.
add_test(NAME engine_contract_small_stack_test
  COMMAND sh -c "ulimit -s 256 && exec \"$<TARGET_FILE:engine_contract_threads_test>\" --gtest_filter='Size/*Chain*:Size/*Edges*:Nested/*.AReal*'")
set_tests_properties(engine_contract_small_stack_test PROPERTIES
  TIMEOUT 600 LABELS "engine;contract" ENVIRONMENT OMP_NUM_THREADS=1)

# Every backward inside a host frame, also where it could be left out.
foreach(group graph state watch sums)
  add_test(NAME engine_contract_${group}_framed_test
    COMMAND engine_contract_${group}_test "--gtest_filter=*/Overdrive.*")
  set_tests_properties(engine_contract_${group}_framed_test PROPERTIES
    TIMEOUT 120 LABELS "engine;contract" ENVIRONMENT OVERDRIVE_EXACT=always)
endforeach()
