# ---- kernels of ag_gemm ----------------------------------------------------------------------------


@triton.jit
def x_full_send(x, x_full_peers, counts, signal_peers, rank, call, program):
    """Move the chunks of x_full, on 16 programs."""
    # each program moves its share of every chunk
    for tile in tl.range(X_FULL_SEND_TILES):
        peer = (rank + (NUM_RANKS - 1) - (tile + program) % (NUM_RANKS - 1)) % NUM_RANKS
        chunk = tile // (NUM_RANKS - 1)
        begin = chunk * X_FULL_CHUNK_ROWS + X_FULL_CHUNK_ROWS * program // X_FULL_PROGRAMS
        share = (
            X_FULL_CHUNK_ROWS * (program + 1) // X_FULL_PROGRAMS
            - X_FULL_CHUNK_ROWS * program // X_FULL_PROGRAMS
        )
        copy_run(
            on_peer(x_full_peers, peer, tl.bfloat16) + rank * X_FULL_PART + begin * X_FULL_COLS,
            x + begin * X_COLS,
            share * X_COLS,
            X_MOVED_BLOCK,
        )
        if count_arrival(counts + X_FULL_ARRIVED_RAISES + peer * X_FULL_CHUNKS + chunk) == X_FULL_PROGRAMS - 1:
            notify(on_peer(signal_peers, peer, tl.int32) + X_FULL_ARRIVED + rank * X_FULL_CHUNKS + chunk, call)


@triton.jit
def out_tiles(x, w, out, x_full, signals, rank, call, program):
    """Compute the tiles of out, on 288 programs."""
    # groups of 4 tiles along m through all of n, segments chunk by chunk
    for tile in tl.range(program, OUT_TILES_TILES, PROGRAMS):
        m_stage = tile // (NUM_RANKS * GROUP_M * N_TILES)
        m_visit = tile % (NUM_RANKS * GROUP_M * N_TILES)
        m_place = m_visit // (GROUP_M * N_TILES)
        m_rest = m_visit % (GROUP_M * N_TILES)
        m_segment = (rank + m_place) % NUM_RANKS
        m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
        n = m_rest // GROUP_M * TILE_N
        if m_segment != rank:
            wait_until(signals + X_FULL_ARRIVED + m_segment * X_FULL_CHUNKS + m // X_FULL_CHUNK_ROWS, call)
        # src[02_ag_gemm.py:15] out
        out_tile = tl.zeros((TILE_M, TILE_N), tl.float32)
        left_from = x_full + m_segment * X_FULL_PART
        if m_segment == rank:
            left_from = x
        for k_tile in range(K_TILES):
            k = k_tile * TILE_K
            left = tl.load(left_from + rows_from(m, TILE_M) * X_COLS + cols_from(k, TILE_K))
            right = tl.load(w + rows_from(k, TILE_K) * W_COLS + cols_from(n, TILE_N))
            out_tile = tl.dot(left, right, out_tile)
        tl.store(
            out + rows_from(m_segment * M_SIZE + m, TILE_M) * OUT_COLS + cols_from(n, TILE_N),
            out_tile.to(tl.bfloat16),
        )
    # the last tiles, in halves
    for tile in tl.range(program, OUT_TILES_TILES_2, PROGRAMS):
        half = tile % 2
        m_stage = (NUM_TILES - HALVED + tile // 2) // (NUM_RANKS * GROUP_M * N_TILES)
        m_visit = (NUM_TILES - HALVED + tile // 2) % (NUM_RANKS * GROUP_M * N_TILES)
        m_place = m_visit // (GROUP_M * N_TILES)
        m_rest = m_visit % (GROUP_M * N_TILES)
        m_segment = (rank + m_place) % NUM_RANKS
        m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
        n = m_rest // GROUP_M * TILE_N + half * (TILE_N // 2)
        if m_segment != rank:
            wait_until(signals + X_FULL_ARRIVED + m_segment * X_FULL_CHUNKS + m // X_FULL_CHUNK_ROWS, call)
        # src[02_ag_gemm.py:15] out
        out_tile = tl.zeros((TILE_M, OUT_TILE_COLS), tl.float32)
        left_from = x_full + m_segment * X_FULL_PART
        if m_segment == rank:
            left_from = x
        for k_tile in range(K_TILES):
            k = k_tile * TILE_K
            left = tl.load(left_from + rows_from(m, TILE_M) * X_COLS + cols_from(k, TILE_K))
            right = tl.load(w + rows_from(k, TILE_K) * W_COLS + cols_from(n, RIGHT_COLS))
            out_tile = tl.dot(left, right, out_tile)
        tl.store(
            out + rows_from(m_segment * M_SIZE + m, TILE_M) * OUT_COLS + cols_from(n, OUT_TILE_COLS),
            out_tile.to(tl.bfloat16),
        )


@triton.jit(do_not_specialize=["rank"])
def out_kernel(x, w, out, x_full, x_full_peers, epoch, counts, signals, signal_peers, rank):
    """x_full_send by 16 programs; out_tiles by 288 programs."""
    program = tl.program_id(0)
    call = tl.load(epoch)
    # every peer has finished the last call
    wait_until(signals + DONE, NUM_RANKS - 1)
    if program < X_FULL_PROGRAMS:
        x_full_send(x, x_full_peers, counts, signal_peers, rank, call, program)
    else:
        out_tiles(x, w, out, x_full, signals, rank, call, by_die(program - X_FULL_PROGRAMS, PROGRAMS, NUM_DIES))
    if count_arrival(counts + OUT_KERNEL_ENDED) == (X_FULL_PROGRAMS + PROGRAMS) - 1:
        # this rank has finished the call
        count_at_peers(signal_peers, DONE, rank, NUM_RANKS=NUM_RANKS)
        # the next call
        clear_counts(counts, NUM_COUNTS=NUM_COUNTS, BLOCK=COUNTS_BLOCK)
        take_off(signals + DONE, NUM_RANKS - 1, WORDS=1, BLOCK=1)
        tl.store(epoch, call + 1)
