"""The memory operations of a kernel, told to the machine: loads, stores, atomics, descriptors, fences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from tilelink.emulator.blocks import everything
from tilelink.emulator.errors import UnknownInlineAsm
from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.inline_asm import KNOWN, Effect, UnknownStatement, parse
from tilelink.emulator.numerics import Handle, NumericBuilder, float_to_bf16
from tilelink.emulator.shortcuts import Semantic as TypeRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tilelink.emulator.inline_asm import Statement
    from tilelink.emulator.machine import Machine

    Array = NDArray[Any]

_SEMANTICS = {
    ir.MEM_SEMANTIC.RELAXED: Semantic.RELAXED,
    ir.MEM_SEMANTIC.ACQUIRE: Semantic.ACQUIRE,
    ir.MEM_SEMANTIC.RELEASE: Semantic.RELEASE,
    ir.MEM_SEMANTIC.ACQUIRE_RELEASE: Semantic.ACQUIRE_RELEASE,
}
_SCOPES = {
    ir.MEM_SYNC_SCOPE.CTA: Scope.CTA,
    ir.MEM_SYNC_SCOPE.GPU: Scope.GPU,
    ir.MEM_SYNC_SCOPE.SYSTEM: Scope.SYSTEM,
}


class AccessSemantic(TypeRules):
    """The type rules; they alone know a scalar from a block of one element, and tell the builder before an access."""

    def load(self, ptr: Any, *args: Any) -> Any:
        self.builder.scalar = not ptr.type.is_block()
        return super().load(ptr, *args)

    def store(self, ptr: Any, *args: Any) -> Any:
        self.builder.scalar = not ptr.type.is_block()
        return super().store(ptr, *args)

    def atomic_cas(self, ptr: Any, *args: Any) -> Any:
        self.builder.scalar = not ptr.type.is_block()
        return super().atomic_cas(ptr, *args)

    def atom_red_typechecking_impl(self, ptr: Any, *args: Any) -> Any:
        """All other atomics come through here."""
        self.builder.scalar = not ptr.type.is_block()
        return super().atom_red_typechecking_impl(ptr, *args)


class _Results:
    """What the language expects of an inline assembly operation."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = handles

    def get_result(self, index: int) -> Handle:
        return self._handles[index]


class MemoryBuilder(NumericBuilder):
    """Executes programs on a `Machine`. Each access: account and check, do it, tell."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.scalar = False  # of the access that comes next: one thread's, not a block's

    # program ids

    def create_get_program_id(self, axis: int) -> Handle:
        return self.get_int32(self._machine.scheduler.task.program[axis])  # type: ignore[no-any-return]

    def create_get_num_programs(self, axis: int) -> Handle:
        return self.get_int32(self._machine.scheduler.task.grid[axis])  # type: ignore[no-any-return]

    # loads and stores

    def create_load(self, ptr: Handle, cache: object, eviction: object, volatile: bool) -> Handle:
        return self._load(ptr, None, None, Via.VOLATILE if volatile else Via.PLAIN)

    def create_masked_load(
        self,
        ptrs: Handle,
        mask: Handle,
        other: Handle | None,
        cache: object,
        eviction: object,
        volatile: bool,
    ) -> Handle:
        return self._load(ptrs, mask.data, other, Via.VOLATILE if volatile else Via.PLAIN)

    def create_store(self, ptr: Handle, value: Handle, cache: object, eviction: object) -> None:
        self._store(ptr, value, None, Via.PLAIN)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle, cache: object, eviction: object) -> None:
        self._store(ptrs, value, mask.data, Via.PLAIN)

    def create_descriptor_load(self, desc: Any, indices: list[Handle], cache: object, eviction: object) -> Handle:
        ptrs, mask = desc.materialize_pointers(indices)
        other = None
        if desc.padding == ir.PADDING_OPTION.PAD_NAN:
            element = ptrs.get_element_ty()
            nan = np.full(ptrs.data.shape, np.nan, np.float32)
            bits = float_to_bf16(nan) if element == tl.bfloat16 else nan.astype(stock._get_np_dtype(element))
            other = Handle(bits, element)
        return self._load(ptrs, mask, other, Via.DESCRIPTOR)

    def create_descriptor_store(self, desc: Any, value: Handle, indices: list[Handle]) -> None:
        ptrs, mask = desc.materialize_pointers(indices)
        self._store(ptrs, value, mask, Via.DESCRIPTOR)

    def _load(self, ptrs: Handle, mask: Array | None, other: Handle | None, via: Via) -> Handle:
        element, dtype, addresses, mask, touched = _decode(ptrs, mask)
        machine, scalar = self._machine, self._one_thread(via)
        if via is Via.VOLATILE:
            machine.scheduler.switch()
        machine.before(f"{via.value} load", touched, dtype.itemsize)
        fallback = np.zeros(addresses.shape, dtype) if other is None else other.data
        result = Handle(native.load(addresses, mask, fallback, dtype), element)
        machine.after(Kind.LOAD, via, touched, dtype.itemsize, changed=False, scalar=scalar)
        return result

    def _store(self, ptrs: Handle, value: Handle, mask: Array | None, via: Via) -> None:
        _, dtype, addresses, mask, touched = _decode(ptrs, mask)
        machine, scalar = self._machine, self._one_thread(via)
        machine.before(f"{via.value} store", touched, dtype.itemsize)
        native.store(addresses, np.broadcast_to(value.data, addresses.shape), mask)
        machine.after(Kind.STORE, via, touched, dtype.itemsize, changed=True, scalar=scalar)

    # words of 64 bits, each stored or loaded in one piece, without an order: atomics that are relaxed

    def _store_words(self, places: Handle, value: Handle) -> None:
        addresses, machine = _addresses(places), self._machine
        machine.scheduler.switch()
        machine.before("store of words", addresses, 8)
        kept = everything(addresses.shape)
        words = np.ascontiguousarray(np.broadcast_to(value.data, addresses.shape))
        changed = native.load(addresses, kept, words, words.dtype).tobytes() != words.tobytes()
        native.store(addresses, words, kept)
        self._told_of_words(addresses, changed=changed)

    def _load_words(self, places: Handle) -> Handle:
        addresses, machine = _addresses(places), self._machine
        machine.scheduler.switch()
        machine.before("load of words", addresses, 8)
        dtype = np.dtype(np.int64)
        found = native.load(addresses, everything(addresses.shape), np.zeros(addresses.shape, dtype), dtype)
        self._told_of_words(addresses, changed=False)
        return Handle(found, tl.int64)

    def _told_of_words(self, addresses: Array, *, changed: bool) -> None:
        self._machine.after(
            Kind.ATOMIC, Via.ATOMIC, addresses, 8, changed=changed, semantic=Semantic.RELAXED, scalar=False
        )

    def _one_thread(self, via: Via) -> bool:
        """Of the access that begins now; to be asked before another task can run."""
        return self.scalar and via is not Via.DESCRIPTOR

    # atomics: each is a place where another task may come first

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: object, scope: object) -> Handle:
        _, dtype, addresses, mask, touched = _decode(ptr, None)
        machine, scalar = self._machine, self.scalar
        machine.scheduler.switch()
        machine.before("atomic_cas", touched, dtype.itemsize)
        # the stock operation reads its operands in place, so they have to be as many as the pointers
        compare, new = (np.ascontiguousarray(np.broadcast_to(h.data, addresses.shape)) for h in (cmp, val))
        old = native.atomic_cas(addresses, compare, new, self.ir_sem_to_interpreter_sem[sem])
        self._after_atomic(addresses, mask, touched, old, dtype, sem, scope, scalar)
        return Handle(old, cmp.dtype.scalar)

    def create_atomic_rmw(
        self, op: object, ptr: Handle, val: Handle, mask: Handle, sem: object, scope: object
    ) -> Handle:
        element, dtype, addresses, lanes, touched = _decode(ptr, mask.data)
        machine, scalar = self._machine, self.scalar
        machine.scheduler.switch()
        machine.before("atomic", touched, dtype.itemsize)
        operand = np.ascontiguousarray(
            val.data if val.data.shape == addresses.shape else np.broadcast_to(val.data, addresses.shape)
        )
        if element == tl.bfloat16:
            old = self._bf16_add(addresses, operand, lanes)
        else:
            kind = self.ir_rmw_op_to_interpreter_rmw_op[op]
            old = native.atomic_rmw(kind, addresses, operand, lanes, self.ir_sem_to_interpreter_sem[sem])
        if touched.size != addresses.size:
            old[~lanes] = 0  # what happens to be there would make two rounds of a poll look different
        self._after_atomic(addresses, lanes, touched, old, dtype, sem, scope, scalar)
        self.scalar = scalar  # a maximum of floats is two atomics, and another task came between
        return Handle(old, val.dtype.scalar)

    def _bf16_add(self, addresses: Array, operand: Array, mask: Array) -> Array:
        """Lane by lane, since lanes may meet at one address; indivisible, since one task runs at a time."""
        old = np.zeros(addresses.shape, np.uint16)
        one = np.ones(1, bool)
        for lane in np.flatnonzero(mask):
            address = addresses.reshape(-1)[lane : lane + 1]
            before = native.load(address, one, np.zeros(1, np.uint16), np.dtype(np.uint16))
            old.reshape(-1)[lane] = before[0]
            added = self.binary_op(
                Handle(before, tl.bfloat16),
                Handle(operand.reshape(-1)[lane : lane + 1], tl.bfloat16),
                np.add,
            )
            native.store(address, added.data, one)
        return old

    def _after_atomic(
        self,
        addresses: Array,
        mask: Array,
        touched: Array,
        old: Array,
        dtype: np.dtype[Any],
        sem: object,
        scope: object,
        scalar: bool,
    ) -> None:
        now = native.load(addresses, mask, old, dtype)
        changed = now.tobytes() != old.tobytes()
        self._machine.after(
            Kind.ATOMIC,
            Via.ATOMIC,
            touched,
            dtype.itemsize,
            changed=changed,
            semantic=_SEMANTICS[sem],
            scope=_SCOPES[scope],
            scalar=scalar,
        )

    # barriers and fences

    def create_barrier(self) -> None:
        self._machine.barrier()

    def create_inline_asm(
        self, asm: str, constraints: str, values: Sequence[Handle], types: list[Any], is_pure: bool, pack: int
    ) -> _Results:
        try:
            statements = parse(asm)
        except UnknownStatement as unknown:
            task = self._machine.scheduler.task.identity
            raise UnknownInlineAsm(
                statement=unknown.statement,
                known=KNOWN,
                rank=task.rank,
                task=task.name,
                place=self._machine.place(),
            ) from None
        results = [_filled(type, 0) for type in types]
        for statement in statements:
            self._apply(statement, types, results, list(values))
        return _Results(results)

    def _apply(self, statement: Statement, types: list[Any], results: list[Handle], given: list[Handle]) -> None:
        """Registers are numbered through: results, then what is given."""
        match statement.effect:
            case Effect.STORE:
                self._store_words(given[statement.address - len(results)], given[statement.value - len(results)])
            case Effect.LOAD:
                results[statement.output] = self._load_words(given[statement.address - len(results)])
            case Effect.FENCE:
                self._machine.fence(statement.text)
            case Effect.BARRIER:
                self._machine.barrier()
            case Effect.CONSTANT:
                results[statement.output] = _filled(types[statement.output], statement.value)
            case Effect.CLOCK:
                results[statement.output] = _filled(types[statement.output], self._machine.spins.clock())
            case Effect.NAP:
                self._machine.scheduler.switch()
            case Effect.NOTHING:
                pass


def _decode(ptrs: Handle, mask: Array | None) -> tuple[Any, np.dtype[Any], Array, Array, Array]:
    """Element type, its numpy type, addresses, a mask of their shape, and the addresses not masked off."""
    element = ptrs.get_element_ty()
    addresses = ptrs.data
    if mask is None:
        return element, stock._get_np_dtype(element), addresses, everything(addresses.shape), addresses
    lanes = mask if mask.shape == addresses.shape else np.broadcast_to(mask, addresses.shape)
    touched = addresses if np.count_nonzero(lanes) == lanes.size else addresses[lanes]
    return element, stock._get_np_dtype(element), addresses, lanes, touched


def _addresses(places: Handle) -> Array:
    """Of pointers that were made numbers."""
    return places.data.astype(np.uint64)


def _filled(type: Any, value: int) -> Handle:
    """`value` in as many bits as there are: a clock of 32 begins again."""
    shape = tuple(type.shape) if type.is_block() else (1,)
    return Handle(np.full(shape, value, np.int64).astype(stock._get_np_dtype(type.scalar)), type.scalar)
