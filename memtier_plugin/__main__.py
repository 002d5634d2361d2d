"""The command line, as `memtier` and as ``python -m memtier_plugin``."""

from __future__ import annotations

import sys

from memtier_plugin import __version__


def run() -> None:
    """Run the command line; help and version are shown without importing click."""
    try:
        from memtier_plugin.cli.commands import find_commands, render_help
    except ImportError as refusal:  # of this platform; these need only the standard library
        sys.exit(f"memtier: {refusal}")
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.stdout.write(render_help(find_commands()) + "\n")
    elif sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"memtier {__version__}\n")
    else:
        from memtier_plugin.cli.main import main

        main(prog_name="memtier")


if __name__ == "__main__":
    run()
