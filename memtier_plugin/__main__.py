"""``python -m memtier_plugin`` is the command line."""

from memtier_plugin.cli.main import main

main(prog_name="memtier")
