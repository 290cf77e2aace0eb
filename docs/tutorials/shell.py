"""`sh("tilelink plan …")`: run a line as your shell does; print it, and what it prints.

`tilelink` runs in this process, because a new one imports torch and Triton again, which takes seconds.
"""

import shlex

from typer.testing import CliRunner

from tilelink.cli import app


def sh(line: str, exits: int = 0) -> str:
    """What the `tilelink` line prints, to stdout and stderr; with `| head -N` or `| tail -N`, N rows of it. `exits`: its code."""
    print(f"$ {line}")
    command, _, cut = line.partition(" | ")
    program, *arguments = shlex.split(command)
    assert program == "tilelink", line
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    output = result.stdout + result.stderr
    assert result.exit_code == exits, f"{line}\n{output}"
    if cut:
        end, _, number = cut.partition(" -")
        rows = output.splitlines(keepends=True)
        output = "".join({"head": rows[: int(number)], "tail": rows[-int(number) :]}[end])
    print(output, end="")
    return output
