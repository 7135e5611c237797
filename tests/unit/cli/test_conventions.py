import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from vivum.cli import conventions
from vivum.cli.conventions import OPTION_WORDS, Failed, JsonOption, command_group, console, run, write_json
from vivum.core.errors import HostError, LimitError, PeerError, UsageError


def app_that(act: Callable[[], None]) -> typer.Typer:
    app = command_group("A test.")

    @app.command()
    def act_now(as_json: JsonOption = False) -> None:
        act()

    return app


def raising(error: BaseException) -> typer.Typer:
    def act() -> None:
        raise error

    return app_that(act)


def test_a_command_that_returns_ends_with_0():
    assert run(app_that(lambda: None), []) == 0


@pytest.mark.parametrize("error", [UsageError("no such checker"), LimitError("no such checker")])
def test_wrong_use_is_one_line_and_exit_code_2(capsys, error):
    assert run(raising(error), []) == 2
    assert capsys.readouterr() == ("", "vivum: error: no such checker\n")


def test_another_error_is_one_line_and_exit_code_1(capsys):
    assert run(raising(PeerError("torn\nfile")), []) == 1
    assert capsys.readouterr() == ("", "vivum: error: torn file\n")


def test_a_command_whose_answer_is_no_ends_with_1_and_says_nothing_more(capsys):
    assert run(raising(Failed()), []) == 1
    assert capsys.readouterr() == ("", "")


def test_an_unknown_option_shows_the_usage_and_ends_with_2(capsys):
    assert run(app_that(lambda: None), ["--loud"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: vivum" in err
    assert "--loud" in err


def test_a_bug_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()), [])


def test_an_interrupt_ends_with_130_and_no_traceback(capsys):
    assert run(raising(KeyboardInterrupt()), []) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_real_interrupt_signal_ends_the_process_with_130():
    code = (
        "import os, signal, sys; from vivum.cli.conventions import command_group, run\n"
        "app = command_group('x')\n"
        "@app.command()\n"
        "def stop() -> None: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(run(app, []))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_reader_that_goes_away_is_no_error_worth_a_word():
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        run_help = [sys.executable, "-m", "vivum.cli", "--help"]
        ended = subprocess.run(run_help, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_json_is_one_object_on_the_last_line(capsys):
    console().print("some text")
    write_json({"name": "Zürich", "values": [1, 2.5, None]})
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {"name": "Zürich", "values": [1, 2.5, None]}


def test_beside_json_text_for_people_goes_to_standard_error(capsys):
    console(as_json=True).print("some text")
    assert capsys.readouterr() == ("", "some text\n")


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        write_json({"rate": float("nan")})


@pytest.mark.parametrize(("arguments", "options"), OPTION_WORDS)
def test_advice_of_the_library_becomes_advice_for_the_command_line(capsys, arguments, options):
    assert run(raising(HostError(f"no service; {arguments}")), []) == 1
    assert capsys.readouterr().err == f"vivum: error: no service; {options}\n"


@pytest.mark.parametrize("arguments", [arguments for arguments, _ in OPTION_WORDS])
def test_the_library_still_says_what_is_put_into_other_words(arguments):
    live = Path(conventions.__file__).parents[1] / "live"
    # A sentence may be cut into two strings.
    source = re.sub(r'"\s+f?"', "", "".join(path.read_text() for path in live.rglob("*.py")))
    assert arguments in source


def test_the_page_on_commands_has_every_exit_code():
    page = (Path(__file__).parents[3] / "docs/guide/commands.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert codes == {0} | {value for name, value in vars(conventions).items() if name.startswith("EXIT_")}


def test_sigterm_ends_a_command_that_has_no_loop_with_143():
    code = (
        "import os, signal, sys; from vivum.cli.conventions import command_group, run\n"
        "app = command_group('x')\n"
        "@app.command()\n"
        "def stop() -> None: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(run(app, []))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (143, "")
