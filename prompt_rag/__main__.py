"""Where the program starts: the hook at once, everything else through the command line.

A prompt is waiting on the hook, so it must not pay for click.
"""

from __future__ import annotations

import sys

# What agent hosts run. Exit code 0 and an empty stderr whatever happens.
HOT = ("hook", "touched")


def main() -> None:
    """Run the command line."""
    if len(sys.argv) > 1 and sys.argv[1] in HOT and not {"--help", "-h"} & set(sys.argv):
        try:
            from prompt_rag import hook

            hook.main(sys.argv[2:])
        except BaseException:  # noqa: BLE001  # whatever it is, the prompt must go through
            # An interrupt or a broken installation, before the hook could protect itself.
            sys.exit(0)
    else:
        from prompt_rag import cli

        cli.main()


if __name__ == "__main__":
    main()
