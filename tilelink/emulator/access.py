"""The memory operations of a kernel, told to the machine: loads, stores, atomics, descriptors, fences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from tilelink.emulator import assembly
from tilelink.emulator.blocks import everything
from tilelink.emulator.errors import UnknownInlineAsm
from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.extra import extern
from tilelink.emulator.inline_asm import Effect, UnknownStatement, parse
from tilelink.emulator.numerics import Handle, NumericBuilder, float_to_bf16
from tilelink.emulator.shortcuts import Semantic as TypeRules
from tilelink.emulator.threads import active, differ, first_is_active, meet

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
_OF_THREADS = (Effect.STORE, Effect.LOAD, Effect.BARRIER)  # where it matters which threads they are


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

    def create_splat(self, ret_ty: Any, arg: Handle) -> Handle:
        if arg.data.size > 1:
            raise differ(self._machine, "a block of one scalar", "is given another one in each thread")
        return super().create_splat(ret_ty, arg)  # type: ignore[no-any-return]

    def create_int_to_ptr(self, src: Handle, dst_type: Any) -> Handle:
        """Addresses below 4 GiB, which a Python whose heap lies there has, come as int32: LLVM extends them by zeros."""
        wide = Handle(src.data.view(f"u{src.data.dtype.itemsize}").astype(np.uint64), src.dtype)
        return super().create_int_to_ptr(wide, dst_type)  # type: ignore[no-any-return]

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
        machine, scalar = self._machine, self._one_thread(via)
        if scalar and ptrs.data.size > 1:  # by each thread that is active, at a place of its own
            mask, scalar = _both(mask, active(machine)), False
        element, dtype, addresses, mask, touched = _decode(ptrs, mask)
        if via is Via.VOLATILE:
            machine.scheduler.switch()
        machine.before(f"{via.value} load", touched, dtype.itemsize)
        fallback = np.zeros(addresses.shape, dtype) if other is None else other.data
        result = Handle(native.load(addresses, mask, fallback, dtype), element)
        machine.after(Kind.LOAD, via, touched, dtype.itemsize, changed=False, scalar=scalar)
        return result

    def _store(self, ptrs: Handle, value: Handle, mask: Array | None, via: Via) -> None:
        machine, scalar = self._machine, self._one_thread(via)
        if not self._goes_on(f"{via.value} store", ptrs, value, scalar=scalar):
            return
        _, dtype, addresses, mask, touched = _decode(ptrs, mask)
        machine.before(f"{via.value} store", touched, dtype.itemsize)
        native.store(addresses, np.broadcast_to(value.data, addresses.shape), mask)
        machine.after(Kind.STORE, via, touched, dtype.itemsize, changed=True, scalar=scalar)

    def _goes_on(self, what: str, *operands: Handle, scalar: bool) -> bool:
        """Whether what thread 0 does for a program, or all threads do for a block, happens. Raises `ThreadsDiffer`."""
        if scalar and any(operand.data.size > 1 for operand in operands):
            raise differ(self._machine, f"{what} of one scalar", "is given other operands in each thread")
        if not scalar and active(self._machine) is not None:
            raise differ(self._machine, f"{what} of a block", "is in a branch that some threads take only")
        return not scalar or first_is_active(self._machine)

    def _atomic_goes_on(self, *operands: Handle) -> None:
        """An atomic of one scalar is that of thread 0. Raises `ThreadsDiffer` where it would do nothing, or differ."""
        if not self._goes_on("atomic", *operands, scalar=self.scalar):
            raise differ(self._machine, "atomic of one scalar", "is in a branch without thread 0, which would do it")

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
        machine, scalar = self._machine, self.scalar
        self._atomic_goes_on(ptr, cmp, val)
        _, dtype, addresses, mask, touched = _decode(ptr, None)
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
        machine, scalar = self._machine, self.scalar
        self._atomic_goes_on(ptr, val, mask)
        element, dtype, addresses, lanes, touched = _decode(ptr, mask.data)
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
        meet(self._machine, "tl.debug_barrier()")

    def create_inline_asm(
        self, asm: str, constraints: str, values: Sequence[Handle], types: list[Any], is_pure: bool, pack: int
    ) -> _Results:
        snippet = self._snippet(asm, constraints, pack)
        if isinstance(snippet, assembly.Steps):
            return _Results(assembly.run(self._machine, snippet, values, types))
        results = [_filled(type, 0) for type in types]
        for statement in snippet:
            self._apply(statement, types, results, list(values))
        return _Results(results)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, values: Sequence[Handle], type: Any, is_pure: bool
    ) -> Handle:
        return extern(symbol, values, type)

    def _snippet(self, asm: str, constraints: str, pack: int) -> tuple[Statement, ...] | assembly.Steps:
        """What the emulator knows of inline assembly. Raises `UnknownInlineAsm`."""
        try:
            statements = parse(asm)
            if active(self._machine) is None or not any(one.effect in _OF_THREADS for one in statements):
                return statements
        except UnknownStatement:
            pass
        try:
            if pack != 1:
                raise assembly.UnknownInstruction(f"pack={pack}", 1)
            if "+" in constraints:
                raise assembly.UnknownInstruction(f"constraints {constraints!r}", 1)
            return assembly.program(asm)
        except assembly.UnknownInstruction as unknown:
            task, place = self._machine.scheduler.task.identity, self._machine.place()
            facts = {"statement": unknown.statement, "line": unknown.line, "known": assembly.KNOWN}
            raise UnknownInlineAsm(**facts, rank=task.rank, task=task.name, place=place) from None

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
                meet(self._machine, "bar.sync")
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


def _both(mask: Array | None, other: Array | None) -> Array | None:
    return other if mask is None else mask if other is None else mask & other


def _addresses(places: Handle) -> Array:
    """Of pointers that were made numbers."""
    return places.data.astype(np.uint64)


def _filled(type: Any, value: int) -> Handle:
    """`value` in as many bits as there are: a clock of 32 begins again."""
    shape = tuple(type.shape) if type.is_block() else (1,)
    return Handle(np.full(shape, value, np.int64).astype(stock._get_np_dtype(type.scalar)), type.scalar)
