"""``python -m memtier_plugin`` is the command line."""

from memtier_plugin.cli import main

main(prog_name="memtier")
