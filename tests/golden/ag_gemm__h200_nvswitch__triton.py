# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit
def out_tiles(x_full_desc, x_desc, w_desc, out_desc, signals, rank, call, program):
    """Compute the tiles of out."""
    TILE_M: tl.constexpr = 128  # m: 4 segments of 2048
    TILE_N: tl.constexpr = 128  # n: 3584
    TILE_K: tl.constexpr = 64  # k: 4096
    for tile in tl.range(program, 1792, 132, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, 16, 28, 8)
        m_segment = (rank + m_place) % 4
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        if m_segment != rank:
            wait_epoch(signals + 1 + m_segment, call)
            fence_descriptors()
        # src[02_ag_gemm.py:15] out
        out = tl.zeros((TILE_M, TILE_N), tl.float32)
        x_left = x_full_desc
        x_left_first = m_segment * 2048
        if m_segment == rank:
            x_left = x_desc
            x_left_first = 0
        for k in range(0, 4096, TILE_K):
            out = tl.dot(x_left.load([x_left_first + m, k]), w_desc.load([k, n]), out)
        out_desc.store([m_segment * 2048 + m, n], out.to(tl.bfloat16))


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
        PROGRAMS=132,
        ENDED=0,
        DONE=0,
        NUM_COUNTS=2,
        BLOCK=2,
        NUM_RANKS=4,
        MEETS=False,
        COPIED=1,
        STREAMS=1,
    )
