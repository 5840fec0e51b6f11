// The core of an autograd engine in 200 lines: plan, heap, run, sums. The first thing to read. It runs the
// nodes that LibTorch makes in a forward, on one thread, and computes the bits of loss.backward(). The main()
// at the end shows this, and is a test (from_scratch). Overdrive is these four ideas, made fast, and the cases
// that the last comment names.
//
// The graph. Each operator of a forward makes a node, which computes the operator's derivative: of `c = a * b`,
// from the gradient of c those of a and b. The edges of a node lead to the nodes that take its results:
//
//     loss = mean(tanh(x W + b) W)            the backward goes from left to right
//
//     Mean --> Mm --> Tanh --> Add --> Mm --> AccumulateGrad of W
//               |               |              ^
//               |               +--> AccumulateGrad of b
//               +------------------------------+
//
// An edge names a node and one of its inputs. AccumulateGrad is the last node of a way: it adds to `.grad`.
#include <torch/torch.h>

#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/function.h>

#include <iostream>
#include <queue>
#include <unordered_map>
#include <vector>

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePtr = decltype(Edge::function);  // owns a node; its type differs between versions of LibTorch

// --- 1. The plan: the graph as a table. A pure function of the graph; nothing runs.
//
// A node may run when all gradients that can reach it have arrived, so somebody must count how many these are.
// The plan walks from the root along all edges, gives each node a number, and counts the edges that lead to it.
// The gradients on their way lie in one long array: a node has as many slots there as it has inputs.

struct PlannedNode {
  Node* node;         // raw: see "Who keeps a node alive" below
  size_t first_slot;  // of its gradients
  int waiting = 0;    // gradients that have not arrived; the run counts down
};

struct Plan {
  std::vector<PlannedNode> nodes;  // [0] is the root
  std::unordered_map<Node*, size_t> numbers;
  size_t num_slots = 0;

  explicit Plan(Node* root) {
    number_of(root);
    // `nodes` is the queue of the walk, too: it grows while the loop reads it.
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const Edge& edge : nodes[i].node->next_edges()) {
        if (edge.is_valid()) nodes[number_of(edge.function.get())].waiting += 1;
      }
    }
  }

  size_t number_of(Node* node) {
    const auto [at, is_new] = numbers.try_emplace(node, nodes.size());
    if (is_new) {
      nodes.push_back({node, num_slots});
      num_slots += node->num_inputs();
    }
    return at->second;
  }
};

// --- 2. The heap: which of the ready nodes runs next.
//
// Every order gives correct gradients, but not the same bits, because a sum of three floats depends on its
// order. Stock runs the node of the latest forward operator first. The sequence number says when a node was
// made; that of AccumulateGrad is the largest, so a finished gradient is put away at once. Nodes of equal
// numbers come in the order in which std::priority_queue moves them, and so they do in Overdrive's own heap.

struct ReadyTask {
  uint64_t sequence_nr;
  size_t number;  // in the plan
  NodePtr keep;   // the node lives until its results are distributed
};
struct RunsAfter {
  bool operator()(const ReadyTask& a, const ReadyTask& b) const { return a.sequence_nr < b.sequence_nr; }
};
using Heap = std::priority_queue<ReadyTask, std::vector<ReadyTask>, RunsAfter>;

// --- 3. Sums: gradients that meet in a slot.

// A forward repeats a small operand: a bias of 8 is added to each row of 4 x 8. Its gradient is the sum over
// the rows. Operators leave this sum to the engine, which knows from the node how large its input was.
at::Tensor fitted(at::Tensor gradient, const Edge& edge) {
  const auto& input = edge.function->input_metadata(edge.input_nr);
  if (!gradient.defined() || input.is_same_shape(gradient)) return gradient;
  return at::sum_to(std::move(gradient), input.shape_as_dim_vector());
}

// A tensor that the forward used twice gets two gradients. The first one is kept without a copy. The sum is a
// new tensor, because the first one may be somebody else's, too: the node Add gives one tensor to both edges.
void add(at::Tensor& slot, at::Tensor gradient) {
  if (!gradient.defined()) return;  // "no gradient", which is less work than zeros
  slot = slot.defined() ? slot + gradient : std::move(gradient);
}

// --- 4. The run: one backward.
//
// Who keeps a node alive: a tensor owns the node that made it, and a node owns those that its edges lead to.
// The program may let go of the loss meanwhile. A node that has not run is kept by an edge of one that has not
// run; a ready node by its task. So a node is freed as soon as it has run, with the tensors that it saved.

class Run {
 public:
  explicit Run(Node* root) : plan_(root), slots_(plan_.num_slots) {}

  void run(NodePtr root, const Edge& edge, at::Tensor gradient) {
    const torch::NoGradGuard no_graph;  // the gradients need none themselves; with create_graph they would
    slots_[edge.input_nr] = std::move(gradient);
    make_ready(0, std::move(root));
    while (!heap_.empty()) {
      const ReadyTask task = heap_.top();
      heap_.pop();
      evaluate(task.number);
    }
  }

  size_t nodes_run() const { return nodes_run_; }

 private:
  void evaluate(size_t number) {
    const PlannedNode& planned = plan_.nodes[number];
    Node& node = *planned.node;
    // Moved out, not copied: AccumulateGrad takes a tensor whose only owner it is as `.grad`.
    variable_list inputs;
    for (size_t i = 0; i < node.num_inputs(); ++i) inputs.push_back(std::move(slots_[planned.first_slot + i]));
    variable_list outputs = node(std::move(inputs));
    node.release_variables();  // what it saved in the forward; with retain_graph it would stay
    ++nodes_run_;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Edge& edge = node.next_edge(i);
      if (edge.is_valid()) arrive(edge, std::move(outputs[i]));
    }
  }

  // An undefined gradient arrives as well, because the plan counted its edge.
  void arrive(const Edge& edge, at::Tensor gradient) {
    const size_t number = plan_.number_of(edge.function.get());
    PlannedNode& planned = plan_.nodes[number];
    add(slots_[planned.first_slot + edge.input_nr], fitted(std::move(gradient), edge));
    if (--planned.waiting == 0) make_ready(number, edge.function);
  }

  void make_ready(size_t number, NodePtr node) {
    const uint64_t sequence_nr = node->sequence_nr();
    heap_.push({sequence_nr, number, std::move(node)});
  }

  Plan plan_;
  std::vector<at::Tensor> slots_;
  Heap heap_;
  size_t nodes_run_ = 0;
};

// As loss.backward(). Returns how many nodes ran.
size_t backward(const at::Tensor& loss) {
  const Edge root = torch::autograd::impl::gradient_edge(loss);
  Run run(root.function.get());
  run.run(root.function, root, at::ones_like(loss));
  return run.nodes_run();
}

// --- The proof: the same graph on stock and here.

// As in the drawing: W is used twice, and b is repeated.
at::Tensor forward(const at::Tensor& x, const at::Tensor& W, const at::Tensor& b) {
  return (x.mm(W) + b).tanh().mm(W).mean();
}

}  // namespace

int main() {
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 8});
  const at::Tensor W = torch::randn({8, 8}).requires_grad_(), b = torch::randn({8}).requires_grad_();

  forward(x, W, b).backward();  // stock
  const at::Tensor W_stock = W.grad().clone(), b_stock = b.grad().clone();
  W.mutable_grad() = b.mutable_grad() = at::Tensor();

  const size_t nodes = backward(forward(x, W, b));  // here
  const bool equal = torch::equal(W.grad(), W_stock) && torch::equal(b.grad(), b_stock);
  std::cout << nodes << " nodes, gradients " << (equal ? "equal" : "DIFFER") << '\n';
  return equal && nodes == 7 ? 0 : 1;
}

// Left out here, and where Overdrive has it: hooks and checks of results (engine/node/node_call), grad(inputs)
// with its captures (engine/plan, engine/node/step), sums in place where nobody sees it (engine/node/grad_sum),
// nested backwards (engine/run), modes that a hook leaves on (engine/host/thread_state), questions to the graph
// task (engine/host/host_frame), several devices (engine/devices), and nodes that the engine computes itself
// (engine/native_nodes). docs/architecture.md goes on from here.
