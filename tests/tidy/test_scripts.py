"""The scripts behind the Makefile, with a stand-in for Python that only writes down what it is told to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STAND_IN = r"""#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
    --version) echo "Python 3.12.0" ;;
    *"version_info < (3, 11)"*) exit 0 ;;
    *sys.executable*) echo "$STAND_IN" ;;
    *sys.prefix*) echo "$PWD/.venv" ;;
    *base_prefix*) echo "the same" ;;
    "-m venv "*) mkdir -p .venv/bin && cp "$STAND_IN" .venv/bin/python ;;
    "-m pip install "*) if [ -f pip-fails ]; then echo "no such package"; exit 1; fi ;;
esac
"""
OLD = '#!/bin/sh\ncase "$*" in --version) echo "Python 3.8.18" ;; *) exit 1 ;; esac\n'


class Clone:
    """A folder with what the scripts need, and the calls that they make."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder / "a clone"
        (self.folder / "src/vivum").mkdir(parents=True)
        shutil.copytree(root / "tools", self.folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "pyproject.toml").write_text("[project]\n")
        self.python = self.program(folder / "python", STAND_IN)
        self.calls = folder / "calls"

    def program(self, path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(self, script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        ours = {"PYTHON": str(self.python), "STAND_IN": str(self.python), "CALLS": str(self.calls)}
        return subprocess.run(
            [str(self.folder / "tools" / script), *words],
            env={**os.environ, **ours, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def installs(self) -> list[str]:
        return [line.split()[-1] for line in self.calls.read_text().splitlines() if line.startswith("-m pip install")]

    def stamps(self) -> list[str]:
        return sorted(path.name for path in (self.folder / ".venv").glob("*.stamp"))


@pytest.fixture
def clone(tmp_path, root):
    return Clone(tmp_path, root)


def test_an_install_is_done_once(clone):
    first = clone.run("venv.sh", "base")
    assert (first.returncode, clone.installs()) == (0, ["."])
    assert "making .venv with Python 3.12.0" in first.stderr
    second = clone.run("venv.sh", "base")
    assert (second.returncode, second.stderr, clone.installs()) == (0, "", [])


def test_a_development_install_serves_as_base_too(clone):
    clone.run("venv.sh", "dev")
    assert clone.installs() == [".[dev]"]
    assert clone.stamps() == ["vivum-base.stamp", "vivum-dev.stamp", "vivum-spark.stamp"]
    for name in ("base", "spark"):
        clone.run("venv.sh", name)
        assert clone.installs() == []


def test_an_install_for_benchmarks_serves_as_development_and_base_too(clone):
    clone.run("venv.sh", "bench")
    assert clone.installs() == [".[dev,bench]"]
    assert clone.stamps() == ["vivum-base.stamp", "vivum-bench.stamp", "vivum-dev.stamp", "vivum-spark.stamp"]
    clone.run("venv.sh", "dev")
    assert clone.installs() == []


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.py", "src/vivum/_codec.pyx"])
def test_a_change_of_what_decides_the_install_makes_it_again(clone, name):
    clone.run("venv.sh", "base")
    (clone.folder / name).write_text("changed\n")
    clone.run("venv.sh", "base")
    assert clone.installs() == ["."]


@pytest.mark.parametrize("name", ["_codec.pyx", "node.pxd", "node.py"])
def test_a_change_of_compiled_sources_alone_compiles_them_for_developers(clone, name):
    (clone.folder / "src/vivum/node.pxd").write_text("declarations\n")
    clone.run("venv.sh", "dev")
    (clone.folder / "src/vivum" / name).write_text("changed\n")
    compiled = clone.run("venv.sh", "dev")
    assert (compiled.returncode, compiled.stderr) == (0, "vivum: compiling what has changed\n")
    assert "setup.py -q build_ext --inplace" in clone.calls.read_text()
    assert clone.installs() == []
    clone.run("venv.sh", "base")
    assert clone.installs() == []


def test_a_change_of_a_source_that_is_not_compiled_does_nothing(clone):
    clone.run("venv.sh", "dev")
    (clone.folder / "src/vivum/topic.py").write_text("changed\n")
    assert clone.run("venv.sh", "dev").stderr == ""


def test_a_failed_install_leaves_no_stamp_and_says_why(clone):
    clone.run("venv.sh", "dev")
    (clone.folder / "pyproject.toml").write_text("changed\n")
    (clone.folder / "pip-fails").touch()
    failed = clone.run("venv.sh", "dev")
    assert failed.returncode == 1
    assert "no such package" in failed.stderr
    assert clone.stamps() == []
    (clone.folder / "pip-fails").unlink()
    assert clone.run("venv.sh", "dev").returncode == 0
    assert clone.installs() == [".[dev]"]


def test_a_folder_that_was_moved_gets_a_new_environment(clone):
    clone.run("venv.sh", "base")
    clone.folder = clone.folder.rename(clone.folder.with_name("moved"))
    moved = clone.run("venv.sh", "base")
    assert "made in another folder" in moved.stderr
    assert clone.installs() == ["."]


def test_an_old_python_is_refused_in_one_sentence(clone, tmp_path):
    old = clone.program(tmp_path / "old", OLD)
    refused = clone.run("venv.sh", "base", PYTHON=str(old))
    assert refused.returncode == 1
    assert refused.stderr == f"vivum: error: PYTHON={old} is Python 3.8.18; Vivum needs Python 3.11 or later\n"
    assert not (clone.folder / ".venv").exists()


def test_a_python_that_is_not_there_is_refused_in_one_sentence(clone):
    refused = clone.run("venv.sh", "base", PYTHON="no-such-python")
    assert refused.returncode == 1
    assert "PYTHON=no-such-python is not a program" in refused.stderr


def test_an_unknown_set_is_refused(clone):
    refused = clone.run("venv.sh", "everything")
    assert refused.returncode == 1
    assert "knows the sets 'base', 'spark', 'dev' and 'bench'" in refused.stderr


def test_java_is_found_by_its_home(clone, tmp_path):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    clone.program(home / "bin/java", "#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    found = clone.run("java.sh", JAVA_HOME=str(home))
    assert (found.returncode, found.stdout.strip()) == (0, str(home))
