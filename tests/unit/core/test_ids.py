"""Ids: plain at run time, readable for a person."""

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId


def test_a_member_reads_as_node_and_incarnation() -> None:
    assert str(Member(NodeId(7), Incarnation(2))) == "7.2"


def test_an_endpoint_reads_as_host_and_port() -> None:
    assert str(Endpoint("10.0.0.1", 7400)) == "10.0.0.1:7400"


def test_ids_are_plain_integers_and_members_plain_tuples_at_run_time() -> None:
    assert type(NodeId(7)) is int
    assert Member(NodeId(7), Incarnation(2)) == (7, 2)
    assert {Member(NodeId(7), Incarnation(2)): "found"}[7, 2] == "found"  # type: ignore[index]


def test_members_are_ordered_by_node_and_then_by_life() -> None:
    members = [Member(NodeId(n), Incarnation(i)) for n, i in ((2, 1), (1, 2), (1, 1))]
    assert [str(member) for member in sorted(members)] == ["1.1", "1.2", "2.1"]
