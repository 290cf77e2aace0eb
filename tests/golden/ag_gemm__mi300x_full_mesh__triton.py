# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit
def x_full_send(x_ptr, x_full_peers, counts, signal_peers, rank, call, program):
    """Move x_full on 16 SMs."""
    for chunk in range(4):
        for step in range(3):
            peer = (rank + 3 - (step + program) % 3) % 4
            source = x_ptr + chunk * 2097152
            target = on_peer(x_full_peers, peer, tl.bfloat16) + rank * 8388608 + chunk * 2097152
            copy_share(target, source, 2097152, program, 16, 16384)
            if count_arrival(counts + peer * 4 + chunk) == 16 - 1:
                notify(on_peer(signal_peers, peer, tl.int32) + 1 + rank * 4 + chunk, call)


@triton.jit
def out_halves(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program):
    """Compute the last 64 tiles of out in halves along n."""
    TILE_M: tl.constexpr = 128  # m: 4 segments of 2048
    TILE_N: tl.constexpr = 64  # n: 3584
    TILE_K: tl.constexpr = 64  # k: 4096
    for half in tl.range(program, 128, 288, flatten=False):
        tile = 1728 + half // 2
        m_place, m_tile, n_tile = chunk_major(tile, 16, 28, 4, 4)
        m_segment = (rank + m_place) % 4
        n = n_tile * 128 + half % 2 * TILE_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, TILE_N)
        if m_segment != rank:
            wait_epoch(signals + 1 + m_segment * 4 + m // 512, call)
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, TILE_N), tl.float32)
        x_left_part = x_full_ptr + m_segment * 8388608
        if m_segment == rank:
            x_left_part = x_ptr
        for k in range(0, 4096, TILE_K):
            k_offsets = k + tl.arange(0, TILE_K)
            x_left_tile = tl.load(x_left_part + m_offsets[:, None] * 4096 + k_offsets[None, :])
            w_right_tile = tl.load(w_ptr + k_offsets[:, None] * 3584 + n_offsets[None, :])
            out = tl.dot(x_left_tile, w_right_tile, out)
        tl.store(out_ptr + (m_segment * 2048 + m_offsets)[:, None] * 3584 + n_offsets[None, :], out.to(tl.bfloat16))


@triton.jit
def out_tiles(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program):
    """Compute the tiles of out."""
    TILE_M: tl.constexpr = 128  # m: 4 segments of 2048
    TILE_N: tl.constexpr = 128  # n: 3584
    TILE_K: tl.constexpr = 64  # k: 4096
    for tile in tl.range(program, 1728, 288, flatten=False):
        m_place, m_tile, n_tile = chunk_major(tile, 16, 28, 4, 4)
        m_segment = (rank + m_place) % 4
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, TILE_N)
        if m_segment != rank:
            wait_epoch(signals + 1 + m_segment * 4 + m // 512, call)
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, TILE_N), tl.float32)
        x_left_part = x_full_ptr + m_segment * 8388608
        if m_segment == rank:
            x_left_part = x_ptr
        for k in range(0, 4096, TILE_K):
            k_offsets = k + tl.arange(0, TILE_K)
            x_left_tile = tl.load(x_left_part + m_offsets[:, None] * 4096 + k_offsets[None, :])
            w_right_tile = tl.load(w_ptr + k_offsets[:, None] * 3584 + n_offsets[None, :])
            out = tl.dot(x_left_tile, w_right_tile, out)
        tl.store(out_ptr + (m_segment * 2048 + m_offsets)[:, None] * 3584 + n_offsets[None, :], out.to(tl.bfloat16))
    out_halves(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program)


@triton.jit(do_not_specialize=["rank"])
def out_kernel(x_ptr, x_full_peers, x_full_ptr, w_ptr, out_ptr, epoch, counts, signals, signal_peers, rank):
    program = tl.program_id(0)
    call = tl.load(epoch)
    await_peers(signals, 3)  # every peer has finished the last call
    if program < 16:
        x_full_send(x_ptr, x_full_peers, counts, signal_peers, rank, call, program)
    else:
        out_tiles(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, by_die(program - 16, 288, 8))
    close_call(
        epoch,
        counts,
        signals,
        signal_peers,
        rank,
        PROGRAMS=304,
        ENDED=16,
        DONE=0,
        NUM_COUNTS=17,
        BLOCK=32,
        NUM_RANKS=4,
        MEETS=False,
    )
