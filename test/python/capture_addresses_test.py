"""A guard compares objects by their places in memory, and holds them: when a value dies, another one may come to its place."""
import weakref

import pytest
import torch

import overdrive
from overdrive.values.read import ATTRIBUTE, ENTRY, ITEM, KEYS, VALUES, Read
from overdrive.values.reads import Reads

BEGIN = """
import torch

class Settings:
    pass

settings, table, items = Settings(), {}, [None]

def with_cell():
    value = None
    def read():
        return value
    def write(other):
        nonlocal value
        value = other
    return read, write

read_cell, write_cell = with_cell()
"""
# What a function reads, and how the program writes it.
PLACES = {
    "attribute": ("settings.scale", "settings.scale = made"),
    "global": ("scale", "scale = made"),
    "entry": ("table['scale']", "table['scale'] = made"),
    "item": ("items[0]", "items[0] = made"),
    "cell": ("read_cell()", "write_cell(made)"),
    "class": ("Settings.scale", "Settings.scale = made"),
}
# How a value is made anew of a number, and a number of the value.
MADE = {
    "float": (lambda k: float(f"{k}.5"), "{}"),
    "int": (lambda k: int(f"{k}000"), "{}"),
    "text": (lambda k: f"the scale is {k}", "float({}[13:])"),
    "tuple": (lambda k: (float(f"{k}.5"), k), "{}[0]"),
    "complex": (lambda k: complex(f"{k}.5"), "{}.real"),
}


def at_the_place_of(make, number, address):
    """A value of the number at the address of one that has died; without a chance for it, at another one."""
    kept = []
    for _ in range(64):
        kept.append(make(number))
        if id(kept[-1]) == address:
            break
    return kept[-1]


def program_of(read):
    program = {"__name__": "program", "torch": torch, "scale": None}
    exec(f"{BEGIN}\ndef function(x, way):\n    return x * {read} if way else x + {read}\n", program)
    return program


@pytest.mark.parametrize("value", MADE)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_at_the_place_of_one_that_died_is_another_value(place, value):
    """Two sets of values share a guard. An equal value, looked at by one of them, lets the one die that the other knows."""
    read, write = PLACES[place]
    make, number_of = MADE[value]
    program = program_of(number_of.format(read))
    captured, x = overdrive.capture(program["function"]), torch.ones(2)

    def put(made):
        program["made"] = made
        exec(write, program)
        return id(program.pop("made"))

    before = put(make(2))
    for way in (0, 1) * 6:
        assert torch.equal(captured(x, way), program["function"](x, way))
    assert captured.stats()["replayed"] > 0, captured.refusal()
    put(make(2))
    captured(x, 1)
    put(at_the_place_of(make, 3, before))
    for way in (0, 1, 0, 1):
        assert torch.equal(captured(x, way), program["function"](x, way)), way


def test_a_list_at_the_place_of_one_that_died_is_another_list():
    """The function drops its list and makes another, which comes to the same place in memory; the program has the old tensor still."""
    settings = type("Settings", (), {})()
    settings.kept = [torch.zeros(2)]

    def function(x):
        settings.kept = None
        settings.kept = [x * 2]
        return x + 1

    captured, held = overdrive.capture(function), []
    for number in range(9):
        captured(torch.full((2,), float(number)))
        held.append(settings.kept[0])
        assert held[-1][0].item() == 2 * number, number
    assert captured.stats()["replayed"] == 5, captured.refusal()


class Value:
    pass


def in_a_slot():
    holder = type("Holder", (), {"__slots__": ("value",)})()
    holder.value = Value()
    return holder


# Of each kind: a holder, the guard of a value in it, and how another value comes there.
LATE = {
    "entry": (lambda: {"value": Value()}, lambda holder: Read(ENTRY, holder, "value"), lambda holder: holder.update(value=Value())),
    "item": (lambda: [Value()], lambda holder: Read(ITEM, holder, 0), lambda holder: holder.__setitem__(0, Value())),
    "values": (lambda: {"value": Value()}, lambda holder: Read(VALUES, holder, None), lambda holder: holder.update(value=Value())),
    "keys": (lambda: {Value(): 1}, lambda holder: Read(KEYS, holder, None), lambda holder: (holder.clear(), holder.update({Value(): 1}))),
    "attribute": (in_a_slot, lambda holder: Read(ATTRIBUTE, holder, "value"), lambda holder: setattr(holder, "value", Value())),
}


@pytest.mark.parametrize("kind", LATE)
def test_guards_that_come_to_many_others_and_go(kind):
    make, guard, change = LATE[kind]
    many = [{"value": float(number)} for number in range(64)]
    reads = Reads(Read(ENTRY, holder, "value") for holder in many)
    assert reads.changed() is None
    for _ in range(3):
        holder = make()
        value = weakref.ref(next(iter(holder)) if kind == "keys" else holder[0] if kind == "item" else
                            holder.value if kind == "attribute" else holder["value"])
        read = guard(holder)
        reads.add([read])
        assert reads.changed() is None and len(reads) == 65
        change(holder)
        assert reads.changed() is read
        assert list(reads.drop_changed()) == [read.place] and reads.changed() is None and len(reads) == 64
        del read
        assert value() is None
    many[63]["value"] = -1.0
    changed = reads.changed()
    assert changed is not None and changed.holder is many[63]


def test_guards_that_are_known_are_not_laid_out_again(monkeypatch):
    guards = [Read(ENTRY, {"value": float(number)}, "value") for number in range(64)]
    reads = Reads(guards)
    assert reads.changed() is None
    laid_out = []
    monkeypatch.setattr(Reads, "_append", lambda self, more: laid_out.extend(more))
    reads.add(guards)
    assert reads.changed() is None and len(reads) == 64 and not laid_out


def test_what_has_changed_is_found_without_a_look_at_all_others(monkeypatch):
    holders = [{"value": float(number)} for number in range(64)]
    reads, looked = Reads(Read(ENTRY, holder, "value") for holder in holders), []
    assert reads.changed() is None
    holders[7]["value"], holders[9]["value"], holders[11]["value"] = -1.0, -2.0, float("11")
    plain = Read.accepts
    monkeypatch.setattr(Read, "accepts", lambda self, now: looked.append(self.holder) or plain(self, now))
    assert [read.holder for read in reads.drop_changed().values()] == [holders[7], holders[9]]
    assert looked == [holders[7], holders[9], holders[11]] and reads.changed() is None and len(reads) == 62
