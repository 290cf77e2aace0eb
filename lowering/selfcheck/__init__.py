"""What emitted files check themselves with; `tilelink.runtime` and `tilelink.bench` import the same text."""
