// A batch on its way through stages that have threads of their own, and back: one node of the graph, which has
// each stage run a backward of its own for each micro-batch, on the same threads. Filled by one forward, each
// slot by one thread; then the graph's. What the threads wait for is stage_threads.h's business.
#pragma once

#include "checkpoint/pipeline/pipeline.h"
#include "checkpoint/pipeline/stage_part.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace overdrive::checkpoint {

// Note [Stages that go back at the same time]
// A node hands its gradient on when it returns, so nodes of one graph cannot overlap on the CPU: stage i would
// wait for all that stage i+1 has to do. Hence one node for the batch. It gets the gradients of all
// micro-batches, and inside it stages are threads, which hand on the gradient of one micro-batch after the
// other:
//
//   forward     {part} --> stage 0 --> | --> stage 1 --> {output}    each stage is cut off at its input
//   backward    {output} --Pipeline[thread 1: stage 1 --> thread 0: stage 0]--> {part}
//
// Same bits: a parameter belongs to one stage, and so to one thread, which takes the micro-batches from the
// last to the first, as the nodes of one thread would come; nothing else is added. After a forward that drew
// random numbers one thread goes back, too. While a stage waits for its gradient it runs again.
//
// The node can do what a checkpointed region can: no grad(), no gradient of a gradient. So a pipeline that
// checkpoints nothing keeps its plain graph.

class StageThreads;

class StagedBatch {
 public:
  StagedBatch(const PipelineOptions& options, std::shared_ptr<StageThreads> threads, size_t parts,
              size_t stages);

  // A stage's turn with a part in the forward: its output, which is the next stage's input.
  at::Tensor run(size_t part, size_t stage, Function function, const at::Tensor& input, bool checkpointed);

  // Makes a node of the graph: behind these, the outputs of the first parts, which have been run.
  static void tie(std::shared_ptr<StagedBatch> batch, const std::vector<at::Tensor*>& outputs);

  // From the gradients of the outputs to those of the inputs, inside the node's backward.
  void go_back(Tensors& gradients, base::Node& node);
  void release();

 private:
  class WayBack;

  const PipelineOptions options_;
  const std::shared_ptr<StageThreads> threads_;
  std::vector<std::vector<std::unique_ptr<StagePart>>> parts_;  // and the stages of each
  base::edge_list begins_;                                      // what the parts were made of
};

}  // namespace overdrive::checkpoint
