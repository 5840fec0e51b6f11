"""Graph, profile and memory of Python's backwards."""
import json
import os
import re

import pytest
import torch

import overdrive


@pytest.fixture(autouse=True)
def on_overdrive():
    with overdrive.engine():
        yield


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64), torch.nn.Tanh())


def test_the_graph_of_a_loss_with_the_names_of_its_parameters(tmp_path):
    net = model()
    loss = net(torch.randn(32, 64)).sum()
    graph = overdrive.graph(loss, net.named_parameters(), title="a net")
    assert [graph.nodes[i]["name"] for i in graph.run_order][:3] == ["SumBackward0", "TanhBackward0", "AddmmBackward0"]
    assert {node["leaf_name"] for node in graph.nodes if node.get("leaf_name")} == {name for name, _ in net.named_parameters()}
    assert json.loads(graph.to_json())["nodes"] == graph.nodes
    assert graph.to_dot().startswith("digraph")
    for ending in ("html", "json", "dot"):
        graph.save(tmp_path / f"graph.{ending}")
    page = (tmp_path / "graph.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert data["title"] == "a net" and data["graph"]["nodes"] == graph.nodes
    with pytest.raises(ValueError, match="ends neither with .html"):
        graph.save(tmp_path / "graph.png")
    loss.backward()


def test_the_nodes_of_a_graph_have_the_times_of_a_trace(tmp_path):
    net = model()
    loss = net(torch.randn(32, 64)).sum()
    graph = overdrive.graph(loss)
    with overdrive.engine(), overdrive.trace(tmp_path / "trace.json"):
        loss.backward()
    assert graph.add_times(tmp_path / "trace.json") == len(graph.run_order)
    assert all(graph.nodes[i]["seconds"] > 0 for i in graph.run_order)
    with pytest.raises(overdrive.OverdriveError, match="cannot be read"):
        graph.add_times(tmp_path / "missing.json")
    with pytest.raises(overdrive.OverdriveError, match="No node of the graph"):
        overdrive.graph(net(torch.randn(32, 64)).sum()).add_times(tmp_path / "trace.json")


def test_the_graph_keeps_no_tensor_alive():
    import weakref
    x = torch.ones(3, requires_grad=True)
    loss = (x * 2).sum()
    gone = weakref.ref(loss)
    graph = overdrive.graph([loss, x.exp()])
    assert len(graph.roots) == 2
    del loss
    assert gone() is None and graph.nodes


def test_a_graph_of_a_tensor_without_gradient_is_an_error():
    with pytest.raises(overdrive.OverdriveError):
        overdrive.graph(torch.ones(3))
    with pytest.raises(ValueError, match="no tensor"):
        overdrive.graph([])
    with pytest.raises(TypeError, match="graph: a tensor is 3; it takes"):
        overdrive.graph(3)
    with pytest.raises(TypeError, match="graph: the leaf 'w' is 3; it takes"):
        overdrive.graph(torch.ones(3, requires_grad=True).exp(), {"w": 3})


@pytest.mark.parametrize("measure", [overdrive.profile, overdrive.memory_timeline])
def test_a_step_that_is_no_function_is_an_error_and_one_without_a_backward_is_none(measure):
    with pytest.raises(TypeError, match=f"{measure.__name__}: step is 3; it takes a function"):
        measure(3)
    assert measure(lambda: None, title="</script>").to_html().count("</script>") == measure(lambda: None).to_html().count("</script>")


def test_a_python_function_is_a_node_of_the_graph():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    graph = overdrive.graph(Twice.apply(torch.ones(3, requires_grad=True)).sum())
    assert [node["name"] for node in graph.nodes][1] == "TwiceBackward"


def test_a_profile_counts_the_nodes_of_the_step(tmp_path):
    net, data = model(), torch.randn(32, 64)
    profile = overdrive.profile(lambda: net(data).sum().backward(), title="a net")
    profile.save(tmp_path / "profile.html")
    page = (tmp_path / "profile.html").read_text()
    shown = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert shown == {"title": "a net", "profile": profile.data} and not re.search(r"""(src|href)\s*=\s*["']""", page)
    types = {one["name"]: one for one in profile.data["types"]}
    assert types["AddmmBackward0"]["count"] == 2 and profile.data["backwards"] == 1
    assert profile.data["nodes"] == sum(one["count"] for one in types.values())
    assert "AddmmBackward0" in str(profile) and max(map(len, str(profile).splitlines())) <= 60


def test_the_memory_of_a_step_and_who_owns_it(tmp_path):
    net, data = model(), torch.randn(256, 64)
    memory = overdrive.memory_timeline(lambda: net(data).square().mean().backward(), title="a net")
    assert memory.peak_bytes >= 256 * 256 * 4
    assert sum(owner["bytes"] for owner in memory.data["owners"]) == memory.peak_bytes
    assert "peak" in str(memory)
    memory.save(tmp_path / "memory.html")
    page = (tmp_path / "memory.html").read_text()
    assert "Memory of" in page and not re.search(r"""(src|href)\s*=\s*["']""", page)


@pytest.mark.parametrize("measure", [overdrive.profile, overdrive.memory_timeline])
def test_an_error_of_the_step_reaches_the_caller_and_the_next_measure_works(measure):
    def step():
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        measure(step)
    measure(lambda: torch.ones(3, requires_grad=True).exp().sum().backward())


def save_a_graph(path):
    overdrive.graph(torch.ones(3, requires_grad=True).exp().sum()).save(path)


def save_a_timeline(path):
    overdrive.memory_timeline(lambda: torch.ones(3, requires_grad=True).exp().sum().backward()).save(path)


def save_a_joined_trace(path):
    part = path.parent / "part.json"
    part.write_text('{"baseTimeNanoseconds": 1, "traceEvents": []}')
    overdrive.join_traces(part, part, path)


@pytest.mark.parametrize("save", [save_a_graph, save_a_timeline, save_a_joined_trace])
def test_no_link_and_no_strangers_file_is_written_in_a_folder_that_others_may_write(tmp_path, save):
    mine, link = tmp_path / "mine.html", tmp_path / "link.html"
    mine.write_text("x" * 1_000_000)  # longer than the page
    link.symlink_to(mine)
    tmp_path.chmod(0o755)
    save(link)
    page = mine.read_text()
    assert "xxxx" not in page and link.is_symlink()

    tmp_path.chmod(0o1777)
    mine.write_text("mine")
    with pytest.raises(OSError, match="link.html"):
        save(link)
    assert mine.read_text() == "mine"
    if os.geteuid() == 0:
        os.chown(mine, 12345, -1)
        with pytest.raises(PermissionError, match="mine.html"):
            save(mine)
        assert mine.read_text() == "mine"
        os.chown(mine, 0, -1)
    save(mine)
    assert "xxxx" not in mine.read_text() and mine.stat().st_size > 40
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_a_graph(tmp_path / "nowhere" / "x.html")
