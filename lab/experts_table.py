"""Tables of what `lab/experts.py` has measured.

python lab/experts_table.py benchmarks/results/experts_2xh100.json > benchmarks/results/experts_2xh100.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_NAMES = {
    "ag_moe": "all_gather, grouped matmul",
    "moe_rs": "grouped matmul, combine, reduce_scatter",
    "ep_layer": "layer, experts on ranks",
}
_ABOUT = """# Experts on {machine}

Microseconds of a call as a CUDA graph of ten calls, index work included; slowest rank, median of 15, bf16. T are the tokens of
all ranks. Between replays ids change, in four drawings. *Grouped*: NCCL, a stable sort and `torch._grouped_mm`. *Fused*: NCCL
and a Triton loop that gathers its rows, of the tile that was fastest of four or five. The layer of both gathers all rows and
scatters sums; tokens are summed by a Triton kernel. *Package*: `triton_kernels`. Every element of `planned` was compared with the
spec.

Routings (`tilelink/bench/routings.py`): *uniform*; *zipf* of exponent 1; *hot4* and *hot7*, an eighth of the experts, all on one
rank, 4 and 7 times as likely as others. *Busiest*: the share of rows of the busiest rank. *Best*: the best baseline over planned.
*K*: experts of a token.

| operator | T | hidden | width | experts | K | routing | busiest | planned | predicted | grouped | fused | package | best |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def row(one: dict[str, Any]) -> str:
    us, sizes = one["us"], one["sizes"]
    ours, others = us["planned"], [us.get(name) for name in ("NCCL, grouped", "NCCL, fused", "triton_kernels")]
    cells = [_NAMES[one["operator"]], *(sizes[name] for name in "THFEK"), one["skew"]]
    cells += [round(one["busiest_rank_share"], 2), *(round(us_) for us_ in (ours, one["predicted_us"]["planned"]))]
    cells += ["" if other is None else round(other) for other in others]
    cells.append(f"{min(other for other in others if other is not None) / ours:.2f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    rows = [one for one in found["rows"] if "us" in one]
    print(_ABOUT.format(machine=found["machine"]))
    print("\n".join(map(row, rows)))


if __name__ == "__main__":
    main()
