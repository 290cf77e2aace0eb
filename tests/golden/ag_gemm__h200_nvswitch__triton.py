# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit
def out_tiles(x_full_desc, x_desc, w_desc, out_desc, signals, rank, call, program):
    """Compute the tiles of out."""
    for tile in tl.range(program, NUM_TILES, PROGRAMS, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, M_TILES, N_TILES, GROUP_M)
        m_segment = (rank + m_place) % NUM_RANKS
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        if m_segment != rank:
            wait_epoch(signals + X_FULL_ARRIVED + m_segment, call)
            fence_descriptors()
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, TILE_N), tl.float32)
        x_left = x_full_desc
        x_left_first = m_segment * X_FULL_ROWS
        if m_segment == rank:
            x_left = x_desc
            x_left_first = 0
        for k in range(0, K_SIZE, TILE_K):
            out = tl.dot(x_left.load([x_left_first + m, k]), w_desc.load([k, n]), out)
        out_desc.store([m_segment * M_SIZE + m, n], out.to(tl.bfloat16))


@triton.jit(do_not_specialize=["rank"])
def out_kernel(x_full_desc, x_desc, w_desc, out_desc, epoch, counts, signals, signal_peers, rank):
    program = tl.program_id(0)
    call = tl.load(epoch)
    out_tiles(x_full_desc, x_desc, w_desc, out_desc, signals, rank, call, program)
    close_call_after_copies(
        epoch,
        counts,
        signals,
        signal_peers,
        rank,
        PROGRAMS=PROGRAMS,
        ENDED=ENDED,
        DONE=DONE,
        NUM_COUNTS=NUM_COUNTS,
        BLOCK=COUNTS_BLOCK,
        NUM_RANKS=NUM_RANKS,
        MEETS=False,
        COPIED=COPIED,
        STREAMS=STREAMS,
    )
