# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

_str_to_dist_comm_scopre = _str_to_dist_signal_op = builtin = consume_token = other
ir = notify = num_ranks = rank = symm_at = tlc = wait = other
