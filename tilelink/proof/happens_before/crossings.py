"""What crosses the links between nodes: puts and their signals alone, no counts that the transport has not, and whole packets."""

from __future__ import annotations

from math import gcd

import numpy as np

from tilelink.ir.dtype import DTYPE_BYTES, dtype_name
from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.flights import FLIGHTS, network_of
from tilelink.proof.happens_before.lanes import Flags
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Come, Expanded, Kind, Rows
from tilelink.schedule.memory import Buffer


def check_crossings(plan: Expanded) -> None:
    """Raises Refuted."""
    network = network_of(plan.schedule)
    if network is None:
        return
    transport, local = network
    buffers = {one.name: one for one in plan.schedule.buffers}
    launches = zip(plan.schedule.launches, plan.launches, strict=True)
    puts = [one for launch, (programs, _) in launches if launch.stream in FLIGHTS for one in programs]
    for rows in plan.rows:
        away = rows.rank // local != rows.owner // local
        if isinstance(rows.step, Come):
            continue
        by_put = np.isin(rows.program, puts)
        _refute(plan, Wrong.ACROSS, rows, away & (~by_put | (rows.kind == Kind.READ)))
        if rows.kind is Kind.ADD and not transport.counts:
            _refute(plan, Wrong.COUNTED_ACROSS, rows, away)
        if rows.kind is Kind.WRITE and buffers[rows.name].protocol is not Protocol.SIMPLE:
            _refute(plan, Wrong.TORN, rows, away & _torn(buffers[rows.name], plan.shapes[rows.name], rows))


def _torn(buffer: Buffer, shape: tuple[int, ...], rows: Rows) -> Flags:
    """Whether what is put begins or ends inside of a packet. A network brings words whole, and no line."""
    if buffer.protocol is Protocol.LL128:
        return np.ones(len(rows.start[-1]), dtype=bool)
    each = gcd(buffer.protocol.data_bytes // DTYPE_BYTES[dtype_name(buffer.dtype)], shape[-1])
    first, end = rows.start[-1], rows.stop[-1]
    torn: Flags = (first % each != 0) | ((end % each != 0) & (end != shape[-1]))
    return torn


def _refute(plan: Expanded, wrong: Wrong, rows: Rows, where: Flags) -> None:
    if where.any():
        raise Refuted(wrong, plan.place(rows, int(np.flatnonzero(where)[0])))
