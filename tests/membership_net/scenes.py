"""Ready-made scenes and single frames, for sentences about membership."""

from membership_net.net import DOMAIN, SERVICE, Net
from vivum.core.ids import Endpoint
from vivum.core.time import MILLISECOND
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.codec import split
from vivum.wire.control import decode_control, encode_control
from vivum.wire.kinds import Kind
from vivum.wire.membership import (
    ConfigurationChanges,
    encode_changes,
)

NOTHING = encode_changes(ConfigurationChanges((), (), ()))


def net_of(count, **settings):
    net = Net(1, ServiceSettings(**{"standbys": 0, **settings}))
    clients = [net.add(f"h{number}", wanted=number) for number in range(1, count + 1)]
    net.run_for(10 * MILLISECOND)
    return net, clients


def refused(gate):
    return gate.counters.frames_refused_state


def to_service(net, host, member, message):
    data = encode_control(Kind.MEMBERSHIP, DOMAIN, *member, 0, 1, 0, message)
    net.send(Endpoint(host, 1), SERVICE, data)
    net.run_for(MILLISECOND)


def to_client(net, host, message, source=SERVICE):
    net.send(source, Endpoint(host, 1), encode_control(Kind.CONFIGURATION, DOMAIN, 9, 1, 0, 1, 0, message))
    net.run_for(MILLISECOND)


def is_message(data, kind):
    (frame,) = split(data)
    return isinstance(decode_control(frame), kind)
