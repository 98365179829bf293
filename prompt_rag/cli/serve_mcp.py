"""``mcp``: the notes as tools for an agent that asks for them."""

from __future__ import annotations

import click

from prompt_rag import config as configuration
from prompt_rag import stdio


@click.command()
def mcp() -> None:
    """Serve the notes over the Model Context Protocol, on stdin and stdout.

    This is what an agent host starts; it ends when the host closes stdin. The tools: search_notes,
    read_note, list_notes, list_tags, sync_notes, status.
    """
    output = stdio.Output()  # before the server's libraries are loaded
    from prompt_rag import mcp_server

    mcp_server.serve(output, configuration.default_home())
