"""Traces of Python's backwards."""
import json
import os
import random
import sys
import threading
import time

import pytest
import torch

import overdrive


@pytest.fixture(autouse=True)
def on_overdrive():
    with overdrive.engine():
        yield


def nodes_of(path):
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") in ("own", "host")]


def test_a_trace_has_every_node_and_an_arrow_from_its_operator(tmp_path):
    path = tmp_path / "trace.json"
    x = torch.ones(3, requires_grad=True)
    with overdrive.trace(path):
        (x.exp() * 2).sum().backward()
    nodes = nodes_of(path)
    assert [node["name"] for node in nodes[:3]] == ["SumBackward0", "MulBackward0", "ExpBackward0"]
    forward = {event["bind_id"]: event["name"] for event in json.loads(path.read_text())["traceEvents"]
               if event.get("flow_out")}
    assert [forward[node["bind_id"]] for node in nodes[:3]] == ["aten::sum", "aten::mul", "aten::exp"]


def test_a_function_of_python_has_its_own_name(tmp_path):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(3, requires_grad=True)
    with overdrive.trace(tmp_path / "trace.json"):
        Twice.apply(x).sum().backward()
    names = [node["name"] for node in nodes_of(tmp_path / "trace.json")]
    assert names[1] == "TwiceBackward"


def test_saved_tensors_hooks_of_python_have_events(tmp_path):
    called = []
    x = torch.ones(3, requires_grad=True)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: called.append("pack") or t, lambda t: called.append("unpack") or t)

    def step():
        with hooks:
            loss = (x * x).exp().sum()
        loss.backward()
        gradient, x.grad = x.grad, None
        return gradient

    plain = step()
    with overdrive.trace(tmp_path / "trace.json"):
        traced = step()
    assert torch.equal(plain, traced)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    told = [(event["cat"], event["name"], event["args"]["bytes"]) for event in events if event.get("cat") in ("pack", "unpack")]
    assert sorted(told) == sorted((what, "saved_tensors_hooks", 12) for what in called[len(called) // 2:]) and told
    (product,) = [event for event in events if event["name"] == "MulBackward0"]
    unpacks = [event for event in events if event.get("cat") == "unpack"]
    assert sum(product["ts"] <= one["ts"] and one["ts"] + one["dur"] <= product["ts"] + product["dur"] for one in unpacks) == 2


def test_the_file_is_whole_after_an_exception(tmp_path):
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        with overdrive.trace(tmp_path / "trace.json", forward=False):
            x.exp().sum().backward()
            raise ZeroDivisionError
    assert len(nodes_of(tmp_path / "trace.json")) == 3


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(overdrive.OverdriveError, match="must be a file that can be written: No such file or directory"):
        with overdrive.trace(tmp_path / "no folder" / "trace.json"):
            pass


def test_a_file_name_is_any_bytes(tmp_path):
    import os

    name = os.fsencode(tmp_path) + b"/\xff.json"
    with overdrive.trace(name):
        torch.ones(3, requires_grad=True).exp().sum().backward()
    with open(name, encoding="utf-8") as file:
        assert json.load(file)["traceEvents"]
    told = "\ufffd.json/trace.json" if sys.version_info >= (3, 11) else "not UTF-8"
    with pytest.raises(overdrive.OverdriveError, match=told), overdrive.trace(name + b"/trace.json"):
        pass


def test_an_error_of_the_block_goes_before_that_of_the_file(tmp_path, monkeypatch):
    call = overdrive.tools.inspect.call

    def fails_at_the_end(name, *arguments):
        result = call(name, *arguments)
        if name == "Trace.end":
            raise overdrive.OverdriveError("the disk is full")
        return result

    monkeypatch.setattr(overdrive.tools.inspect, "call", fails_at_the_end)
    with pytest.raises(overdrive.OverdriveError, match="full"), overdrive.trace(tmp_path / "trace.json"):
        pass
    with pytest.raises(ZeroDivisionError), overdrive.trace(tmp_path / "trace.json"):
        raise ZeroDivisionError


def test_a_trace_has_the_backwards_of_other_threads(tmp_path):
    def work():
        torch.ones(3, requires_grad=True).exp().sum().backward()

    with overdrive.trace(tmp_path / "trace.json"):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(nodes_of(tmp_path / "trace.json")) == 9


PROGRAM = "import overdrive, torch; overdrive.install(); torch.ones(3, requires_grad=True).exp().sum().backward()"


def run_with(trace):
    import os
    import subprocess
    import sys
    return subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "OVERDRIVE_TRACE": str(trace)},
                          capture_output=True, text=True, timeout=300)


def test_the_environment_traces_a_program_that_knows_nothing_of_it(tmp_path):
    done = run_with(tmp_path / "trace-%p.json")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    assert len(nodes_of(path)) == 3
    assert path.name != "trace-%p.json"


def test_the_environments_file_that_cannot_be_written_is_an_error(tmp_path):
    done = run_with(tmp_path / "no folder" / "trace.json")
    assert done.returncode != 0
    assert 'OVERDRIVE_TRACE is "' in done.stderr and "No such file or directory" in done.stderr


def test_pytorchs_profiler_keeps_its_events(tmp_path):
    def names(scope):
        x = torch.ones(3, requires_grad=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            with scope:
                x.exp().sum().backward()
        return sorted(event.name for event in profiler.events())

    import contextlib
    assert names(contextlib.nullcontext()) == names(overdrive.trace(tmp_path / "trace.json"))


def test_a_trace_and_pytorchs_profile_share_one_time_line(tmp_path):
    import time
    x = torch.ones(3, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with torch.profiler.record_function("around"):
            time.sleep(0.02)  # the clocks agree by far less
            with overdrive.trace(tmp_path / "trace.json"):
                x.exp().sum().backward()
            time.sleep(0.02)
    profiler.export_chrome_trace(str(tmp_path / "profile.json"))
    overdrive.join_traces(tmp_path / "trace.json", tmp_path / "profile.json", tmp_path / "both.json")
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    (around,) = [event for event in events if event["name"] == "around" and event.get("ph") == "X"]
    nodes = [event for event in events if event.get("cat") in ("own", "host")]
    assert len(nodes) == 3 and all(node["pid"] != around["pid"] for node in nodes)
    for node in nodes:
        assert around["ts"] < node["ts"] and node["ts"] + node["dur"] < around["ts"] + around["dur"]
    theirs = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    assert events[:len(theirs)] == theirs


def test_files_without_a_moment_are_not_joined(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="is no trace with a moment"):
        overdrive.join_traces(tmp_path / "list.json", tmp_path / "list.json", tmp_path / "both.json")


def damaged(text, random):
    """One to three of: another byte, the end cut off, a piece twice, a piece left out, something of another kind."""
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text) + 1)
        piece = text[at:at + random.randint(1, 30)]
        text = random.choice([
            lambda: text[:at] + bytes([random.randrange(256)]) + text[at + 1:],
            lambda: text[:at],
            lambda: text[:at] + piece + text[at:],
            lambda: text[:at] + text[at + len(piece):],
            lambda: text[:at] + random.choice([b"9" * 400, b"-1e999", b"null", b"[[[[", b"{}", b'"x"', b"[" * 100_000]) + text[at:],
        ])()
    return text


def test_a_damaged_trace_is_an_error_with_its_name(tmp_path, capsys):
    events = [{"ph": "X", "pid": 7, "tid": 7, "name": "MulBackward0", "ts": 12.5, "dur": 1, "bind_id": "0x1"}] * 3
    good = json.dumps({"baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events}).encode()
    (tmp_path / "profile.json").write_bytes(good)
    first = int(os.environ.get("OVERDRIVE_TEST_SEED", "1"))
    end = time.monotonic() + float(os.environ.get("OVERDRIVE_TEST_SECONDS", "0")) / 6
    seed, errors = first, 0
    while seed < first + 300 or time.monotonic() < end:
        (tmp_path / "damaged.json").write_bytes(damaged(good, random.Random(seed)))
        files = ["damaged.json", "profile.json"] if seed % 2 else ["profile.json", "damaged.json"]
        try:
            overdrive.join_traces(*(tmp_path / name for name in files), tmp_path / "both.json")
        except ValueError as error:
            errors += 1
            assert str(tmp_path / "damaged.json") in str(error), f"seed {seed}"
        seed += 1
    with capsys.disabled():
        print(f"traces: seeds {first} to {seed - 1}, {errors} errors")
    assert errors > 0
