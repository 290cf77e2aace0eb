"""`triton_dist` and `triton_dist.language`: the decorator, the six distributed operations, SIMT and shared memory."""

from __future__ import annotations

from tilelink.dialect_api.model import EVERY, Effect, Function, Place, Reach, Unsaid, Vendor
from tilelink.dialect_api.notation import signature

ROOT = "triton_dist"
LANGUAGE = "triton_dist.language"
_SOURCE = "1"
_CHOICES_ON_AMD = "the legal scopes and semantics on AMD"


_DISTRIBUTED = (
    Function(
        "wait",
        (LANGUAGE,),
        signature("barrierPtrs:wait_words numBarriers:count scope:wait_scope semantic:wait_semantic waitValue:value=1"),
        EVERY,
        Place.DEVICE,
        Effect.WAIT,
        "every warp polls up to 32 words, one a lane, until each equals waitValue; no CTA barrier, no fence "
        "(AMD: any number of words, then a barrier of the block)",
        _SOURCE,
        "int32 token",
        Reach.WARP,
        unsaid=_CHOICES_ON_AMD,
    ),
    Function(
        "consume_token",
        (LANGUAGE,),
        signature("value:address token:token"),
        EVERY,
        Place.DEVICE,
        Effect.NONE,
        "returns value; loads through the result come after the wait that made the token",
        _SOURCE,
        "value",
        Reach.PROGRAM,
    ),
    Function(
        "notify",
        (LANGUAGE,),
        signature(
            'ptr:notify_word rank:rank signal:value=1 sig_op:set_or_add="set" comm_scope:comm_scope="inter_node"'
        ),
        (Vendor.NVIDIA,),
        Place.DEVICE,
        Effect.RAISE,
        "thread 0 sets a word of a rank or adds to it, after a fence of its scope (inter_node: none); no CTA barrier",
        _SOURCE,
        reach=Reach.THREAD,
    ),
    Function(
        "symm_at",
        (LANGUAGE,),
        signature("ptr:scalar_pointer rank:rank"),
        EVERY,
        Place.DEVICE,
        Effect.NONE,
        "the address of a symmetric word on a peer; arithmetic comes after it",
        _SOURCE,
        "pointer",
        Reach.PROGRAM,
    ),
)


def _ranks() -> tuple[Function, ...]:
    rows = (("rank", "index of this GPU in the group"), ("num_ranks", "number of GPUs in the group"))
    return tuple(
        Function(
            name,
            (LANGUAGE,),
            signature("axis:value=-1"),
            EVERY,
            Place.DEVICE,
            Effect.NONE,
            f"{meaning}; axis is ignored",
            _SOURCE,
            "int32",
            Reach.PROGRAM,
        )
        for name, meaning in rows
    )


_SIMT_NAMES = (
    ("extern_call", Effect.NONE, "calls a function of linked bitcode"),
    ("vector", Effect.NONE, "type of a short vector of one thread"),
    ("make_vector", Effect.NONE, "a vector of given scalars"),
    ("zeros_vector", Effect.NONE, "a vector of zeros"),
    ("extract", Effect.NONE, "one element of a vector or tensor"),
    ("insert", Effect.NONE, "a vector or tensor with one element replaced"),
    ("ld_vector", Effect.LOAD, "a vector load of one thread"),
    ("st_vector", Effect.STORE, "a vector store of one thread"),
    ("allocate_smem", Effect.NONE, "a buffer in shared memory"),
    ("smem_index", Effect.NONE, "a part of a shared buffer"),
    ("smem_load", Effect.NONE, "a load from a shared buffer"),
    ("smem_store", Effect.NONE, "a store to a shared buffer"),
    ("smem_get_ptr", Effect.NONE, "a pointer to a shared buffer"),
    ("get_smem_shared_address_u32", Effect.NONE, "the shared address of a buffer as 32 bits"),
    ("smem_dealloc", Effect.NONE, "frees a shared buffer"),
    ("SharedMemoryDesc", Effect.NONE, "type of a shared buffer"),
    ("SMEM_GENERIC_POINTER_ADDR_SPACE", Effect.NONE, "number of an address space"),
    ("tma", Effect.NONE, "module of TMA pipelines"),
)


def _simt() -> tuple[Function, ...]:
    region = Function(
        "simt_exec_region",
        (LANGUAGE,),
        signature(""),
        EVERY,
        Place.DEVICE,
        Effect.NONE,
        "`with dl.simt_exec_region() as (thread_idx, block_size):` runs scalar code once a thread",
        _SOURCE,
        "(thread_idx, block_size)",
        Reach.THREAD,
    )
    return (
        region,
        *(
            Function(
                name, (LANGUAGE,), Unsaid(), EVERY, Place.DEVICE, effect, meaning, _SOURCE, unsaid="the parameters"
            )
            for name, effect, meaning in _SIMT_NAMES
        ),
    )


DECORATOR = Function(
    "jit",
    (ROOT,),
    Unsaid(),
    EVERY,
    Place.HOST,
    Effect.NONE,
    "the arguments of triton.jit; links the SHMEM bitcode and initialises the module after compilation",
    _SOURCE,
    "kernel",
)

FUNCTIONS = (DECORATOR, *_DISTRIBUTED, *_ranks(), *_simt())
