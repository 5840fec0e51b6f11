"""Errors come out as Python raised them; warnings and anomaly mode say what stock says."""
import threading
import traceback

import pytest
import torch
from conftest import on, python, same_on_both, variables_of

import overdrive


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, make):
        ctx.make = make
        return x * 1

    @staticmethod
    def backward(ctx, g):
        raise_deep(ctx.make)


def raise_deep(make):
    try:
        {}["missing"]
    except KeyError as cause:
        raise make() from cause


class Odd(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


@pytest.mark.parametrize("make", [lambda: ValueError("bad", 3), lambda: Odd(7, "odd"), KeyboardInterrupt,
                                  lambda: SystemExit(4), lambda: StopIteration("over"), MemoryError])
def test_an_error_keeps_type_arguments_cause_and_traceback(make):
    def scenario(note):
        x = torch.ones(2, requires_grad=True)
        try:
            Fails.apply(x.exp(), make).sum().backward()
        except BaseException as error:
            note(error, getattr(error, "code", None))
        note(x.grad is None)

    ((chain, _), _) = same_on_both(scenario)
    assert "raise_deep" in chain[0][3] and chain[1][0] == "KeyError"


@pytest.mark.parametrize("where", ["tensor hook", "pre-hook", "post-hook", "post-accumulate", "unpack", "callback"])
def test_errors_of_hooks(where):
    def scenario(note):
        def fail(*_):
            raise LookupError(where)

        x = torch.ones(2, requires_grad=True)
        if where == "unpack":
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, fail):
                y = x.exp()
        else:
            y = x.exp()
        if where == "tensor hook":
            y.register_hook(fail)
        elif where == "pre-hook":
            y.grad_fn.register_prehook(fail)
        elif where == "post-hook":
            y.grad_fn.register_hook(fail)
        elif where == "post-accumulate":
            x.register_post_accumulate_grad_hook(fail)
        elif where == "callback":
            y.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(fail))
        try:
            y.sum().backward()
        except LookupError as error:
            note(error)
        # The engine works as before.
        z = torch.ones(2, requires_grad=True)
        z.exp().sum().backward()
        note(z.grad)

    assert len(same_on_both(scenario)) == 2


def test_errors_of_the_engine_have_the_texts_of_stock():
    def scenario(note):
        x = torch.ones(2, requires_grad=True)

        def attempt(what, run):
            try:
                run()
                note(what, "no error")
            except Exception as error:
                note(what, type(error).__name__, str(error))

        y = x.exp().sum()
        y.backward()
        attempt("a second time", y.backward)
        attempt("not a scalar", lambda: x.exp().backward())
        attempt("no graph", lambda: torch.ones(1).backward())
        attempt("unused", lambda: torch.autograd.grad(x.exp().sum(), torch.ones(1, requires_grad=True)))
        attempt("shape", lambda: x.exp().backward(torch.ones(3)))
        z = x * 1
        w = z.exp()
        w.add_(1)
        attempt("in place", w.sum().backward)
        attempt("inputs", lambda: x.exp().sum().backward(inputs=[]))
        attempt("not a leaf's", lambda: x.exp().sum().backward(inputs=[torch.ones(1)]))

        class WrongShape(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 1

            @staticmethod
            def backward(ctx, g):
                return torch.ones(7)

        attempt("wrong gradient", lambda: WrongShape.apply(x).sum().backward())

        class TooMany(WrongShape):
            @staticmethod
            def backward(ctx, g):
                return g, g

        attempt("too many", lambda: TooMany.apply(x).sum().backward())

    notes = same_on_both(scenario)
    assert all(row[1] != "no error" for row in notes), notes


def test_warnings(heard):
    def scenario(note):
        del heard[:]
        x = torch.ones(2, requires_grad=True)
        x.exp().sum().backward(create_graph=True)
        x.grad = None

        class Warns(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 1

            @staticmethod
            def backward(ctx, g):
                import warnings

                warnings.warn("from Python", FutureWarning)
                return g

        Warns.apply(x).sum().backward()
        note([(w.category.__name__, str(w.message).split("(Trigger")[0]) for w in heard])

    ((rows,),) = same_on_both(scenario)
    assert ["FutureWarning", "from Python"] in rows and len(rows) == 2


def test_a_warning_that_is_an_error():
    def scenario(note):
        import warnings

        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                x = torch.ones(2, requires_grad=True)
                try:
                    x.exp().sum().backward(create_graph=True)
                except UserWarning as error:
                    note(str(error).split("(Trigger")[0])
                note(x.grad is None)
                x.grad = None
        finally:
            torch.set_warn_always(False)
        torch.ones(1, requires_grad=True).exp().backward()

    assert len(same_on_both(scenario)) == 2


def test_anomaly_mode_shows_the_forward_in_python(heard):
    def scenario(note):
        del heard[:]
        x = torch.zeros(2, requires_grad=True)

        def forward_of_the_program():
            return (x / x).sqrt()

        with torch.autograd.detect_anomaly():
            y = forward_of_the_program()
            try:
                y.sum().backward()
            except RuntimeError as error:
                note(str(error))
        text = [str(w.message) for w in heard if "Traceback of forward call" in str(w.message)]
        note(len(text), ["forward_of_the_program" in t for t in text], [t.split(". Traceback")[0] for t in text])

    notes = same_on_both(scenario)
    assert "returned nan values" in notes[0][0] and notes[1][0] == 1 and notes[1][1] == [True]


def test_anomaly_mode_of_a_nested_backward_names_the_node_around(heard):
    def scenario(note):
        del heard[:]

        class Outer(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * 1

            @staticmethod
            def backward(ctx, g):
                with torch.enable_grad():
                    z = torch.zeros(1, requires_grad=True)
                    (z / z).sqrt().sum().backward()
                return g

        with torch.autograd.detect_anomaly():
            y = Outer.apply(torch.ones(1, requires_grad=True))
            try:
                y.sum().backward()
            except RuntimeError as error:
                note(str(error))
        note([str(w.message).split("\n")[0] for w in heard if "Traceback" in str(w.message)])

    same_on_both(scenario)


def test_a_backward_that_c_plus_plus_starts_is_refused_while_holding_the_gil(engine, plugin):
    x = torch.ones(2, requires_grad=True)
    y = x.exp().sum()
    text = plugin.backward_holding_the_gil(y._cdata).decode()
    assert "The autograd engine was called while holding the GIL" in text
    assert x.grad is None
    assert plugin.backward_without_the_gil(y._cdata) == b""
    assert x.grad is not None


def test_errors_of_python_in_a_backward_that_c_plus_plus_starts(plugin):
    def scenario(note):
        x = torch.ones(2, requires_grad=True)
        y = Fails.apply(x, lambda: ValueError("from Python", 5)).sum()
        try:
            plugin.backward_without_the_gil(y._cdata)
        except ValueError as error:  # left with Python by the host, raised by ctypes
            note(error.args, error.__cause__)

    assert same_on_both(scenario)


@pytest.mark.elsewhere
def test_an_error_that_nobody_catches_ends_the_program_with_its_traceback(engine, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import torch\n"
                      "def hook(g):\n    raise ValueError('seen')\n"
                      "x = torch.ones(1, requires_grad=True)\ny = x.exp()\ny.register_hook(hook)\ny.backward()\n")
    done = python([script], variables_of(engine), check=False)
    assert done.returncode == 1
    assert "ValueError: seen" in done.stderr and "in hook" in done.stderr


def test_the_traceback_prints():
    def scenario(note):
        x = torch.ones(1, requires_grad=True)
        try:
            Fails.apply(x, lambda: ValueError("bad")).backward()
        except ValueError:
            note([line for line in traceback.format_exc().splitlines() if not line.strip().startswith("^")])

    same_on_both(scenario)


def test_stock_and_overdrive_take_turns_after_an_error():
    def scenario(note):
        x = torch.ones(1, requires_grad=True)
        with pytest.raises(ValueError):
            Fails.apply(x, ValueError).backward()
        x.exp().backward()
        note(x.grad)

    assert on("stock", scenario) == on("overdrive", scenario) == on("stock", scenario)


def called_in_the_forward(x):
    return x.exp()


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("mine")


def test_the_note_has_the_line_of_the_forward_without_anomaly_mode(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_ERRORS", "full")
    place = f"called_in_the_forward at {__file__}:{called_in_the_forward.__code__.co_firstlineno + 1}\n"
    with overdrive.engine():
        loss = called_in_the_forward(torch.ones(2, requires_grad=True)).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time") as caught:
            loss.backward()
        assert "Traceback of forward call:" in str(caught.value) and place in str(caught.value)
        assert "/torch/" not in overdrive.last_error_note()
        # An error of Python's own stays as it is, and its note is asked for. A thread is known by its first backward.
        notes = []

        def on_another_thread():
            for _ in range(2):
                with pytest.raises(ValueError, match="^mine$"):
                    Refuses.apply(called_in_the_forward(torch.ones(2, requires_grad=True))).sum().backward()
                notes.append(overdrive.last_error_note())

        thread = threading.Thread(target=on_another_thread)
        thread.start()
        thread.join()
        assert "Traceback" not in notes[0] and f"on_another_thread at {__file__}:" in notes[1]
    monkeypatch.setenv("OVERDRIVE_ERRORS", "plain")
    with overdrive.engine():
        loss = called_in_the_forward(torch.ones(2, requires_grad=True)).sum()
        loss.backward()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
        assert "called_in_the_forward" not in str(caught.value) + overdrive.last_error_note()
