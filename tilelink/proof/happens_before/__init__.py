"""One happens-before proof for every schedule: no interleaving of any ranks, in any number of calls, goes wrong."""
