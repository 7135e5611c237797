import pytest

from vivum.core.errors import UsageError
from vivum.runtime.defaults import Defaults, read_defaults


@pytest.fixture
def home(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(folder, text):
    (folder / "vivum.toml").write_text(text)


def test_without_file_and_variables_they_are_those_of_vivum(home):
    assert read_defaults(home) == Defaults("default", "127.0.0.1", (), False)


def test_a_variable_wins_over_the_file_and_the_file_over_vivum(home, tmp_path):
    write(tmp_path, 'domain = "file"\ninterface = "10.0.0.5"\nseeds = ["10.0.0.1:7000"]\n')
    found = read_defaults({**home, "VIVUM_DOMAIN": "variable", "VIVUM_UNICAST": "1"})
    assert found == Defaults("variable", "10.0.0.5", ("10.0.0.1:7000",), True)


def test_seeds_in_a_variable_are_separated_by_commas(home):
    assert read_defaults({**home, "VIVUM_SEEDS": "a:1, b:2,"}).seeds == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["domain = 7", "domian = 'x'", "domain =", "seeds = 'a:1'"])
def test_a_file_that_makes_no_sense_is_named_with_what_it_may_have(home, tmp_path, text):
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"vivum\.toml: .* may have domain, interface, seeds, unicast"):
        read_defaults(home)


def test_a_file_that_is_named_must_exist(tmp_path):
    with pytest.raises(UsageError, match=r"VIVUM_CONFIG=.*: No such file"):
        read_defaults({"VIVUM_CONFIG": str(tmp_path / "none.toml")})


def test_a_variable_that_makes_no_sense_is_named(home):
    with pytest.raises(UsageError, match="VIVUM_UNICAST=yes: must be 0 or 1"):
        read_defaults({**home, "VIVUM_UNICAST": "yes"})


def test_a_user_without_a_home_has_the_defaults_of_vivum(monkeypatch):
    """As in a container that runs as a number without a name."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert read_defaults({}) == Defaults()
