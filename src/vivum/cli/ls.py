"""`vivum ls`: the topics and nodes of a domain."""

from typing import Annotated

import typer
from rich.table import Table

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.cli.running import run_command
from vivum.core.topic_names import EVERY_TOPIC, OWN_TOPICS
from vivum.live.browsing import NodeInfo, TopicInfo
from vivum.live.connecting import Connecting

app = command_group("List the topics and nodes of a domain.")


@app.command()
def ls(
    pattern: Annotated[str, typer.Argument(help="Which topics: /swx/* or /swx/**.")] = EVERY_TOPIC,
    every: Annotated[
        bool, typer.Option("--all", help="Also topics of Vivum's own, below /vivum, such as those of recorders.")
    ] = False,
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to look for the domain.")] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """List topics with type, guarantee and number of members, and the nodes of a domain that runs."""
    connecting = joining.prepare(domain, interface, seeds, unicast, embedded=False, timeout_s=timeout)
    topics, nodes = run_command(_look(connecting, pattern))
    if not (every or pattern.startswith(OWN_TOPICS)):
        topics = [each for each in topics if not each.name.startswith(f"{OWN_TOPICS}/")]
    if as_json:
        write_json(
            {
                "domain": domain,
                "topics": [
                    {"name": each.name, "type": each.type, "guarantee": each.guarantee, "members": each.members}
                    for each in topics
                ],
                "nodes": [
                    {"id": str(each.member), "name": each.name, "at": str(each.endpoint), "topics": each.topics}
                    for each in nodes
                ],
            }
        )
        return
    out = console()
    table = Table(box=None, pad_edge=False)
    for title in ("topic", "type", "guarantee"):
        table.add_column(title)
    table.add_column("members", justify="right")
    for topic in topics:
        table.add_row(topic.name, topic.type, topic.guarantee, str(topic.members))
    out.print(table if topics else f"no topics match {pattern}")
    out.print()
    table = Table(box=None, pad_edge=False)
    for title in ("node", "name", "at"):
        table.add_column(title)
    table.add_column("topics", justify="right")
    for node in nodes:
        table.add_row(str(node.member), node.name, str(node.endpoint), str(node.topics))
    out.print(table if nodes else "no other nodes")


async def _look(connecting: Connecting, pattern: str) -> tuple[list[TopicInfo], list[NodeInfo]]:
    async with connecting as node:
        topics = await node.topics(pattern)
        return topics, [each for each in await node.nodes() if each.member != node.member]
