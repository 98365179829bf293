"""``config`` and ``model``: settings with their origin, and the embedding model."""

from __future__ import annotations

import click

from prompt_rag import config as configuration
from prompt_rag import configfile, embedder
from prompt_rag.cli import output
from prompt_rag.config import SETTING_FIELDS
from prompt_rag.domain import ConfigError, ModelUnavailable


@click.group("config")
def config_group() -> None:
    """Show and change settings."""


@config_group.command("show")
@output.json_option
def show_config(as_json: bool) -> None:
    """Print every setting with its value and where that comes from."""
    config = configuration.load()
    values = {key: config.value(key) for key in SETTING_FIELDS}
    if as_json:
        output.print_json(
            {
                "file": config.file,
                "home": config.home,
                "settings": {
                    key: {"value": value, "origin": config.origins[key]}
                    for key, value in values.items()
                },
                "sources": config.sources,
            }
        )
        return
    rows = [[key, _shown(value), config.origins[key]] for key, value in values.items()]
    output.print_table(["setting", "value", "from"], rows)
    output.say(f"file: {config.file}\nhome: {config.home}")


def _shown(value: object) -> str:
    if value is None:
        return "(the model's)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@config_group.command("set")
@click.argument("key")
@click.argument("value")
def set_config(key: str, value: str) -> None:
    """Set KEY to VALUE in the file, keeping its comments."""
    changed = configfile.set_value(configuration.load(), key, value)
    origin = changed.origins[key]
    note = "" if origin == str(changed.file) else f" (but {origin} overrides it)"
    output.say(f"{key} = {_shown(changed.value(key))}{note}")


# --- model --------------------------------------------------------------------------------------


@click.group()
def model() -> None:
    """Show, verify or fetch the embedding model."""


@model.command("show")
@click.option("--all", "all_models", is_flag=True, help="List every model that can be used.")
@output.json_option
def show_model(all_models: bool, as_json: bool) -> None:
    """Show the model in use."""
    if all_models:
        models = embedder.known_models()
        if as_json:
            output.print_json(
                [dict(zip(("name", "dim", "licence"), m, strict=True)) for m in models]
            )
        else:
            rows = [[name, str(dim), licence] for name, dim, licence in models]
            output.print_table(["name", "dim", "licence"], rows, right=(1,))
        return
    config = configuration.load()
    files = embedder.locate(config.settings.model_name, config.home)
    identity = embedder.identity_of(files)
    if as_json:
        output.print_json({"identity": identity, "weights": files.weights, "folder": files.folder})
        return
    rows = [
        ["name", identity.name],
        ["dimensions", str(identity.dim)],
        ["reads", f"{identity.max_tokens} tokens"],
        ["weights", str(files.weights)],
        ["tokenizer", str(files.folder)],
        ["fingerprint", identity.fingerprint],
    ]
    output.print_table(["", ""], rows)


@model.command("verify")
@output.json_option
def verify_model(as_json: bool) -> None:
    """Check the model's files and embed a sentence with them."""
    config = configuration.load()
    files = embedder.locate(config.settings.model_name, config.home)
    vector = embedder.FastEmbedder(files).embed_query("a note about a note")
    if vector.shape != (files.dim,):
        raise ModelUnavailable(
            f"{files.name} answers with {len(vector)} dimensions instead of {files.dim}",
            embedder.mend(files),
        )
    if as_json:
        output.print_json({"model": files.name, "ok": True, "dim": len(vector)})
    else:
        output.say(f"{files.name} is whole and answers with {len(vector)} dimensions")


@model.command("pull")
@click.argument("name")
def pull_model(name: str) -> None:
    """Fetch the model NAME; the only command that uses the network."""
    if name == embedder.DEFAULT_MODEL:
        raise ConfigError(
            f"{name} comes with the installation and is never fetched", "prompt-rag model verify"
        )
    config = configuration.load()
    files = embedder.pull(name, config.home)
    output.say(
        f"{name} is in {files.folder}\nnow run: prompt-rag config set model.name {name}"
        " && prompt-rag rebuild && prompt-rag tune"
    )
