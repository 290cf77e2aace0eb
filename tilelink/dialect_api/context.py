"""All that the rules look at: the file, the walks through its kernels, and the calls of its host code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.dialect_api.binding import bind
from tilelink.dialect_api.functions import find
from tilelink.dialect_api.host_values import HostValues
from tilelink.dialect_api.source import SourceFile
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.typecheck import Message
from tilelink.dialect_api.walk import Walked, walk


@dataclass(frozen=True, slots=True)
class Context:
    file: SourceFile
    host: HostValues
    walks: tuple[Walked, ...]
    device_events: tuple[Event, ...]  # calls of all kernels; a function that two kernels call is seen twice
    host_events: tuple[Event, ...]  # calls of API functions only
    messages: tuple[Message, ...]  # of the type checker

    @property
    def events(self) -> tuple[Event, ...]:
        return self.device_events + self.host_events


def context(file: SourceFile, messages: tuple[Message, ...]) -> Context:
    """Walk every kernel of a file, of which a type checker says `messages`."""
    host = HostValues(file)
    walks = tuple(walk(file, host, entry) for entry in file.entries())
    device = tuple(event for walked in walks for event in walked.events)
    return Context(file, host, walks, device, tuple(_host_events(file, host)), messages)


def _host_events(file: SourceFile, host: HostValues) -> Iterator[Event]:
    for call, within in file.host_calls:
        path = file.full_path(call.func)
        function = find(path)
        if function is not None:
            bound = bind(call, function.signature_on(file.vendor))
            arguments = tuple((parameter.name, node, host.of(node, within)) for parameter, node in bound)
            yield Event(None, within, call, path, function, arguments)
