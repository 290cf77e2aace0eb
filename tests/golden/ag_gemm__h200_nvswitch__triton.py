# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit(do_not_specialize=["rank"])
def out_kernel(x_desc, w_desc, out_desc, x_full_desc, epoch, counts, signals, signal_peers, rank):
    """Compute the tiles of out, on 132 programs."""
    program = tl.program_id(0)
    call = tl.load(epoch)
    # groups of 8 tiles along m through all of n, segments rank by rank
    for tile in tl.range(program, NUM_TILES, PROGRAMS, flatten=True):
        m_place = tile // SEGMENT_TILES
        m_stage = tile % SEGMENT_TILES // (GROUP_M * N_TILES)
        m_rest = tile % SEGMENT_TILES % (GROUP_M * N_TILES)
        m_segment = (rank + m_place) % NUM_RANKS
        m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
        n = m_rest // GROUP_M * TILE_N
        if m_segment != rank:
            wait_until(signals + X_FULL_ARRIVED + m_segment, call)
            fence_descriptors()
        # src[02_ag_gemm.py:15] out
        out_tile = tl.zeros((TILE_M, TILE_N), tl.float32)
        left_from = x_full_desc
        left_first = m_segment * X_FULL_ROWS
        if m_segment == rank:
            left_from = x_desc
            left_first = 0
        for k_tile in range(K_TILES):
            k = k_tile * TILE_K
            left = left_from.load([left_first + m, k])
            right = w_desc.load([k, n])
            out_tile = tl.dot(left, right, out_tile)
        out_desc.store([m_segment * M_SIZE + m, n], out_tile.to(tl.bfloat16))
    if count_arrival(counts + OUT_KERNEL_ENDED) == PROGRAMS - 1:
        # this rank has finished the call
        wait_until(counts + COPIED, 1)
        count_at_peers(signal_peers, DONE, rank, NUM_RANKS=NUM_RANKS)
        # the next call
        clear_counts(counts, NUM_COUNTS=NUM_COUNTS, BLOCK=COUNTS_BLOCK)
        take_off(signals + DONE, NUM_RANKS - 1, WORDS=1, BLOCK=1)
        tl.store(epoch, call + 1)
