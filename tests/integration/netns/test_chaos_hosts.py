"""A minute of chaos between hosts; root only, skipped with a reason otherwise. `make soak` has more of it."""

from pathlib import Path

import pytest

from chaos_hosts.run import run_chaos
from vivum.bench.namespaces import why_impossible

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := why_impossible()), reason=why or "possible")]


@pytest.mark.parametrize("seed", [1, 107])
def test_what_programs_were_promised_holds_while_hosts_fail(seed: int, tmp_path: Path) -> None:
    verdict = run_chaos(seed, tmp_path)
    assert verdict.violations == []
    # A quiet run would prove nothing.
    assert verdict.figures["read"] > 20_000
    assert verdict.figures["lives"] > 8
