"""What a captured function reads is looked for once and then kept. What comes to a program between two of its first calls is
found, too, and its later values are noticed."""
import gc
import sys

import pytest
import torch

import overdrive

BEGIN = """
import torch

class Settings:
    def __init__(self):
        self.on = False

class Base:
    pass

class Derived(Base):
    pass

settings, derived, table, net = Settings(), Derived(), {}, torch.nn.Module()
function_of_defaults = lambda value=None: value

def helper(o):
    return o.extra

def nothing(o):
    o.called = True
"""
# The body of a function of x; what the program does when `on` is set; what it does later.
ROWS = {
    "attribute": ("x * settings.scale", "settings.scale = 2.0", "settings.scale = 3.0"),
    "attribute of a class": ("x * settings.scale", "Settings.scale = 2.0", "Settings.scale = 3.0"),
    "attribute of a base class": ("x * derived.scale", "Base.scale = 2.0", "Base.scale = 3.0"),
    "class above": ("x * derived.scale", "Base.scale = 2.0", "Derived.scale = 3.0"),
    "key": ("x * table['scale']", "table['scale'] = 2.0", "table['scale'] = 3.0"),
    "object in a list": ("x * table['all'][0].scale", "table['all'] = [Base()]; table['all'][0].scale = 2.0", "table['all'][0].scale = 3.0"),
    "attribute of a module": ("x * net.scale", "net.scale = 2.0", "net.scale = 3.0"),
    "child of a module": ("x * net.child.scale", "net.child = torch.nn.Module(); net.child.scale = 2.0", "net.child.scale = 3.0"),
    "default": ("x * function_of_defaults()", "function_of_defaults.__defaults__ = (2.0,)", "function_of_defaults.__defaults__ = (3.0,)"),
    "function of a class": ("x * settings.get()", "Settings.get = lambda self: self.scale\nsettings.scale = 2.0", "settings.scale = 3.0"),
    "attribute of a function": ("x * helper.scale", "helper.scale = 2.0", "helper.scale = 3.0"),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("at", [1, 2, 3, 7])
def test_what_comes_after_the_first_calls_is_looked_at(row, at):
    read, come, change = ROWS[row]
    program = {"__name__": "program"}
    exec(f"{BEGIN}\ndef function(x):\n    if settings.on:\n        return {read}\n    return x + 1\n", program)
    function, captured = program["function"], overdrive.capture(program["function"])
    batches = [torch.randn(2, generator=torch.Generator().manual_seed(seed)) for seed in range(9)]
    for x in batches[:at]:
        assert torch.equal(captured(x), function(x))
    exec(f"settings.on = True\n{come}", program)
    for x in batches:
        assert torch.equal(captured(x), function(x))
    assert captured.stats()["replayed"] > 0, captured.refusal()
    exec(change, program)
    for x in batches:
        assert torch.equal(captured(x), function(x))


def test_a_value_is_noticed_beside_one_that_changes_in_every_call():
    """The dict of both has another version in each call."""
    program = {"__name__": "program"}
    exec(f"{BEGIN}\nsettings.scale = 2.0\ndef function(x):\n    return x * settings.scale\n", program)
    settings, captured = program["settings"], overdrive.capture(program["function"])
    for number in range(12):
        settings.unread = object()
        assert captured(torch.ones(1)).item() == 2.0, number
    assert captured.stats()["replayed"] == 8
    for scale in (3.0, 2.0, 4.0):
        settings.scale = scale
        for _ in range(6):
            settings.unread = object()
            assert captured(torch.ones(1)).item() == scale


def test_an_equal_value_that_is_another_object_is_no_other_value():
    program = {"__name__": "program"}
    exec(f"{BEGIN}\nsettings.scale = 1000.5\ndef function(x):\n    return x * settings.scale\n", program)
    settings, captured = program["settings"], overdrive.capture(program["function"])
    for number in range(12):
        settings.scale = float(f"{1000}.5")
        assert captured(torch.ones(1)).item() == 1000.5, number
    assert captured.stats()["replayed"] == 8
    settings.scale = 1001.5
    assert captured(torch.ones(1)).item() == 1001.5


def test_an_error_that_a_helper_raises_is_an_answer():
    program = {"__name__": "program"}
    exec(f"{BEGIN}\ndef function(x):\n    nothing(settings)\n    try:\n        return x * helper(settings)\n"
         "    except AttributeError:\n        return x * 1\n", program)
    settings, captured = program["settings"], overdrive.capture(program["function"])
    for _ in range(8):
        assert captured(torch.ones(1)).item() == 1.0
    assert captured.stats()["replayed"] == 4, captured.refusal()
    settings.extra = 2.0
    for _ in range(8):
        assert captured(torch.ones(1)).item() == 2.0


def test_what_a_call_made_dies_with_the_next():
    """A kept walk holds nothing that the function replaces."""
    program = {"__name__": "program"}
    exec(f"{BEGIN}\nclass Made:\n    alive = 0\n    def __init__(self):\n        Made.alive += 1\n    def __del__(self):\n        Made.alive -= 1\n"
         "def function(x):\n    settings.made = Made()\n    settings.made.scale = 2.0\n    return x * settings.made.scale\n", program)
    captured = overdrive.capture(program["function"])
    for _ in range(8):
        assert captured(torch.ones(1)).item() == 2.0
        gc.collect()
        assert program["Made"].alive <= 4


def test_collections_are_as_the_program_has_set_them():
    captured = overdrive.capture(lambda x: x * 2)
    for enabled in (False, True):
        (gc.enable if enabled else gc.disable)()
        captured.reset()
        try:
            for _ in range(6):
                captured(torch.ones(1))
            assert gc.isenabled() == enabled
        finally:
            gc.enable()


SCALES = [1.0]


def test_comprehensions_are_not_searched_for_in_the_heap(monkeypatch):
    """Python makes their functions, calls and drops them, and a search through all objects takes tens of milliseconds."""
    from overdrive.reads.code import Met

    searched, plain = [], Met.functions
    monkeypatch.setattr(Met, "functions", lambda self, codes: plain(self, [searched.append(code.co_name) or code for code in codes]))

    def function(x):
        return sum([x * scale for scale in SCALES]) + sum(x * scale for scale in SCALES), {key: x * key for key in SCALES}[1.0]

    captured = overdrive.capture(function)
    for _ in range(6):
        x = torch.randn(2)
        assert all(map(torch.equal, captured(x), function(x)))
    assert captured.stats()["replayed"] == 2 and not searched


class Named(torch.nn.Module):
    """Finds attributes by names that it puts together, so that all are looked at whose names have such a part."""

    def __init__(self):
        super().__init__()
        self.layer, self.first_impl, self.factor = torch.nn.Linear(4, 4), 1.0, 1.0

    def forward(self, x):
        return (self.layer(x).tanh() * self.factor * getattr(self, f"{'first'}_impl")).sin().sum()


def test_a_walk_does_not_go_through_captured_parts(monkeypatch):
    """The name of the attribute in which a module has its part may have such a part. A part has all of its guards, from which a walk went
    on to whole modules of Python: it took seconds, and an array there was a refusal."""
    from overdrive.step.part import part_of
    from overdrive.reads.walk_objects import Objects

    met, plain = set(), Objects._entries
    monkeypatch.setattr(Objects, "_entries", lambda self, entries, names, owner, depth: met.add(owner) or plain(self, entries, names, owner, depth))
    model, twin = overdrive.captured(Named()), Named()
    twin.load_state_dict(model.state_dict())
    for number in range(24):
        model.factor = twin.factor = 1.0 + number // 12
        x = torch.randn(3, 4)
        losses = model(x), twin(x)
        assert torch.equal(*losses)
        for loss in losses:
            loss.backward()
    part = part_of(model)
    assert part is not None and part.stats()["replayed"] > 9, overdrive.explain()
    assert [owner for owner in met if owner.startswith("Named")] and not [owner for owner in met if "_compiled_call_impl" in owner]


def test_a_recording_looks_for_nothing_that_the_run_before_it_has_found(monkeypatch):
    """What Overdrive itself calls while it records an update is no code of the program: one walk serves all recordings, and few events of
    the profile function come to Python."""
    from overdrive.reads import code
    from overdrive.reads.last_walk import LastWalk

    walks, events, make, note = [], [], LastWalk.__init__, code.Watcher._returns
    monkeypatch.setattr(LastWalk, "__init__", lambda self, *arguments: walks.append(make(self, *arguments)))
    monkeypatch.setattr(code.Watcher, "_returns", lambda self, *arguments: events.append(note(self, *arguments)))

    def steps():
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters())

        def train(x):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

        step = overdrive.capture(train, optimizer=optimizer)
        for _ in range(8):
            step(torch.randn(4, 4))
        assert step.stats()["replayed"] == 4, step.explain()

    steps()
    walks.clear(), events.clear()
    steps()
    assert len(walks) == 1 and len(events) < 500


def test_who_looks_for_a_module_that_is_imported_is_no_code_of_the_step(monkeypatch, tmp_path):
    """As setuptools puts a finder there, which asks itself for what the module's name says."""
    from overdrive.reads.code import Met, Watcher
    from overdrive.reads.finds import Found

    class Finder:
        def find_spec(self, name, path=None, target=None):
            method = "spec_of_{name}".format(**locals())
            return getattr(self, method, lambda: None)()

    (tmp_path / "imported_by_a_step.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])

    with Watcher(None, Met(), print) as watcher:
        import imported_by_a_step  # noqa: F401
    assert watcher.by_names.is_no_more_than(Found())
