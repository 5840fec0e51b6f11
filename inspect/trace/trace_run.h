// Writes the nodes of one backward into a trace. A RunWatch: the run owns it, and the threads of the run call
// it at once. What a thread knows of its running nodes lies in the thread's ring.
#pragma once

#include "engine/node/run_watch.h"
#include "inspect/trace/trace_file.h"

#include <atomic>
#include <memory>

namespace overdrive::inspect {

class TraceRun final : public engine::RunWatch {
 public:
  TraceRun(std::shared_ptr<TraceFile> file, const engine::RunFacts& facts, bool live_bytes);
  ~TraceRun() override;

  void before_node(const engine::NodeFacts& facts) override;
  void after_node(const engine::NodeFacts& facts, const base::variable_list& outputs, bool native) override;
  void node_failed(const engine::NodeFacts& facts) noexcept override;
  void end(const std::exception_ptr& error) override;

 private:
  uint32_t name_of(RecordRing& ring, const base::Node& node) const;
  void finish(RecordRing& ring, uint32_t index, uint64_t now, int64_t bytes_out, bool native,
              bool failed) const;

  const std::shared_ptr<TraceFile> file_;
  const engine::Plan& plan_;
  const uint64_t number_;
  const uint64_t begin_;
  const bool live_bytes_;
  const size_t nodes_;
  // When the last gradient came to a node. Several threads may bring one at once; any of them will do.
  const std::unique_ptr<std::atomic<uint64_t>[]> arrived_;
};

}  // namespace overdrive::inspect
