# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit
def x_full_send(x_ptr, x_full_peers, counts, signal_peers, rank, call, program):
    """Move the chunks of x_full."""
    for chunk in range(X_FULL_CHUNKS):
        for step in range(NUM_RANKS - 1):
            peer = (rank + (NUM_RANKS - 1) - (step + program) % (NUM_RANKS - 1)) % NUM_RANKS
            source = x_ptr + chunk * X_FULL_CHUNK_ELEMENTS
            target = on_peer(x_full_peers, peer, tl.bfloat16) + rank * X_FULL_PART_ELEMENTS + chunk * X_FULL_CHUNK_ELEMENTS
            copy_share(target, source, X_FULL_CHUNK_ELEMENTS, program, X_FULL_PROGRAMS, X_FULL_BLOCK)
            if count_arrival(counts + peer * X_FULL_CHUNKS + chunk) == X_FULL_PROGRAMS - 1:
                notify(on_peer(signal_peers, peer, tl.int32) + X_FULL_ARRIVED + rank * X_FULL_CHUNKS + chunk, call)


@triton.jit
def out_halves(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program):
    """Compute the last tiles of out as halves along n, for more programs."""
    for half in tl.range(program, 2 * HALVED_TILES, PROGRAMS, flatten=False):
        tile = WHOLE_TILES + half // 2
        m_place, m_tile, n_tile = chunk_major(tile, M_TILES, N_TILES, GROUP_M, M_SEGMENTS)
        m_segment = (rank + m_place) % NUM_RANKS
        n = n_tile * TILE_N + half % 2 * HALF_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, HALF_N)
        if m_segment != rank:
            wait_epoch(signals + X_FULL_ARRIVED + m_segment * X_FULL_CHUNKS + m // X_FULL_CHUNK_ROWS, call)
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, HALF_N), tl.float32)
        x_left_part = x_full_ptr + m_segment * X_FULL_PART
        if m_segment == rank:
            x_left_part = x_ptr
        for k in range(0, K_SIZE, TILE_K):
            k_offsets = k + tl.arange(0, TILE_K)
            x_left_tile = tl.load(x_left_part + m_offsets[:, None] * X_FULL_COLS + k_offsets[None, :])
            w_right_tile = tl.load(w_ptr + k_offsets[:, None] * W_COLS + n_offsets[None, :])
            out = tl.dot(x_left_tile, w_right_tile, out)
        tl.store(
            out_ptr + (m_segment * M_SIZE + m_offsets)[:, None] * OUT_COLS + n_offsets[None, :],
            out.to(tl.bfloat16),
        )


@triton.jit
def out_tiles(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program):
    """Compute the tiles of out."""
    for tile in tl.range(program, WHOLE_TILES, PROGRAMS, flatten=False):
        m_place, m_tile, n_tile = chunk_major(tile, M_TILES, N_TILES, GROUP_M, M_SEGMENTS)
        m_segment = (rank + m_place) % NUM_RANKS
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, TILE_N)
        if m_segment != rank:
            wait_epoch(signals + X_FULL_ARRIVED + m_segment * X_FULL_CHUNKS + m // X_FULL_CHUNK_ROWS, call)
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, TILE_N), tl.float32)
        x_left_part = x_full_ptr + m_segment * X_FULL_PART
        if m_segment == rank:
            x_left_part = x_ptr
        for k in range(0, K_SIZE, TILE_K):
            k_offsets = k + tl.arange(0, TILE_K)
            x_left_tile = tl.load(x_left_part + m_offsets[:, None] * X_FULL_COLS + k_offsets[None, :])
            w_right_tile = tl.load(w_ptr + k_offsets[:, None] * W_COLS + n_offsets[None, :])
            out = tl.dot(x_left_tile, w_right_tile, out)
        tl.store(
            out_ptr + (m_segment * M_SIZE + m_offsets)[:, None] * OUT_COLS + n_offsets[None, :],
            out.to(tl.bfloat16),
        )
    out_halves(x_full_ptr, x_ptr, w_ptr, out_ptr, signals, rank, call, program)


@triton.jit(do_not_specialize=["rank"])
def out_kernel(x_ptr, x_full_peers, x_full_ptr, w_ptr, out_ptr, epoch, counts, signals, signal_peers, rank):
    program = tl.program_id(0)
    call = tl.load(epoch)
    await_peers(signals, NUM_RANKS - 1)  # every peer has finished the last call
    if program < X_FULL_PROGRAMS:
        x_full_send(x_ptr, x_full_peers, counts, signal_peers, rank, call, program)
    else:
        out_tiles(
            x_full_ptr,
            x_ptr,
            w_ptr,
            out_ptr,
            signals,
            rank,
            call,
            by_die(program - X_FULL_PROGRAMS, PROGRAMS, DIES),
        )
    close_call(
        epoch,
        counts,
        signals,
        signal_peers,
        rank,
        PROGRAMS=GRID,
        ENDED=ENDED,
        DONE=DONE,
        NUM_COUNTS=NUM_COUNTS,
        BLOCK=COUNTS_BLOCK,
        NUM_RANKS=NUM_RANKS,
        MEETS=False,
    )
