import importlib
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

from vivum.cli import main
from vivum.cli.app import COMMANDS, PLACES


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vivum {version('vivum')}\n"


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_no_words_at_all_show_the_help_and_end_with_2(capsys):
    assert main([]) == 2
    assert "Usage: vivum" in "".join(capsys.readouterr())


def test_an_unknown_command_shows_the_usage_and_ends_with_2(capsys):
    assert main(["doctr"]) == 2
    err = capsys.readouterr().err
    assert "Usage: vivum" in err
    assert "Did you mean 'doctor'?" in err


def test_an_unknown_option_of_a_command_names_the_command_in_its_usage(capsys):
    assert main(["doctor", "--loud"]) == 2
    assert "Usage: vivum doctor" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_its_file_with_an_app(name):
    file, attribute = PLACES.get(name, (name, "app"))
    assert isinstance(getattr(importlib.import_module(f"vivum.cli.{file}"), attribute), typer.Typer)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    assert main([name, "--help"]) == 0
    assert f"Usage: vivum {name}" in capsys.readouterr().out


def test_the_list_of_commands_is_shown_without_importing_any_of_them():
    code = "import sys; from vivum.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(ended.stderr.split())
    ours = {name for name in imported if name.startswith("vivum.") and not name.startswith("vivum.core")}
    assert ours == {"vivum.cli", "vivum.cli.app", "vivum.cli.conventions"}
    assert not imported & {"asyncio", "multiprocessing", "pyarrow", "pyspark", "nicegui"}


@pytest.mark.parametrize(("words", "found"), [("vivum su", "sub"), ("vivum sub --na", "--names")])
def test_a_shell_completes_commands_and_their_options(words, found):
    environment = os.environ | {"_VIVUM_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    code = "import sys; from vivum.cli import main; sys.argv[0] = 'vivum'; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found in done.stdout.split()
