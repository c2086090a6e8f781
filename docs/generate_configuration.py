"""Writes docs/reference/configuration.md from the table of settings; a test compares the two.

Run it after a change of crystal/config/table.py: ``python docs/generate_configuration.py``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crystal.config.kinds import shown
from crystal.config.providers import EMBEDDING_PROVIDERS
from crystal.config.table import SETTINGS, Alias, Setting
from crystal.credentials.api_keys import variables_of

PAGE = Path(__file__).parent / "reference" / "configuration.md"

HEAD = """\
<!-- Made by docs/generate_configuration.py from crystal/config/table.py. Change those, not this page. -->

# Configuration

crystal works without any setting.
Every setting below has a default, and `crystal config` shows the value that holds on this machine and where it came from.

## Where a value comes from

The first of these that has a value wins:

1. a flag of the command;
2. an environment variable, where an empty one counts as unset;
3. the settings file;
4. the default.

A value that cannot be used stops the command with exit code 2; the message names the file or the variable, the key, the value and what is accepted.
So does a key that does not exist, and a file that is not TOML.
A bad value in the file is an error also when a variable wins over it.

The settings file is one TOML file:

| system | place |
|---|---|
| Linux | `~/.config/crystal/config.toml`, or below `XDG_CONFIG_HOME` |
| macOS | `~/Library/Application Support/crystal/config.toml`, or below `XDG_CONFIG_HOME` |
| Windows (untested) | `%LOCALAPPDATA%\\crystal\\crystal\\config.toml` |

`CRYSTAL_CONFIG` names another file.

```toml
agent_id = "cc-laptop"

[embedding]
provider = "ollama"

[private]
projects = ["~/clients/*", "/srv/payroll"]
```

`crystal config set KEY VALUE...` changes one value, and `crystal config unset KEY` takes one out; comments and layout of the file stay as they are.
`crystal config get KEY` prints one value, and `crystal config path` the place of the file.

`agents.NAME.isolated` is a key for each agent, in a table `[agents.NAME]`: `true` hides what was said in it [from other agents](../how-to/keep-something-private.md#one-agent-from-the-other-agents).
The default is `false`, and there is no variable for it.

## Places

| variable | default | meaning |
|---|---|---|
| `LDM_HOME` | `~/.ldm` | The tree of everything that crystal keeps. |
| `CRYSTAL_DATA_DIR` | `LDM_HOME/memory` | The folder of the store, `crystal.db`. |
| `OPENCLAW_HOME` | `~/.openclaw` | Where the original system kept its data: `memory-crystal` in it is the folder of the store if it exists and `LDM_HOME/memory/crystal.db` does not. |
| `CRYSTAL_CONFIG` | see above | The settings file. |
| `CLAUDE_CONFIG_DIR` | `~/.claude` | Claude Code's own folder, where its transcripts are. |

`~` is the home folder, and a relative path starts at the current folder.
These are no settings of the file, because the hook that runs at the end of every turn reads no file.
"""  # noqa: E501 - one sentence a line, as in every page

TAIL = """\
## Embedding providers

EMBEDDING_PROVIDERS

Other models are a setting; of one that crystal does not know set `embedding.dimension` too.

## API keys

A key is looked for in this order, and the first place that has one wins:

1. given explicitly to the Python API;
2. an environment variable;
3. the file `.env` in the folder of the store;
4. the system's keyring (`credentials.keyring`), service `crystal`, user name as the provider;
5. the command of `credentials.key_command`.

KEY_VARIABLES

`.env` holds lines `NAME=value`, with `export`, quotes and comments as in a shell; nothing in it is expanded or run, and nothing but API keys is read from it.
crystal warns when other users can read it.

The keyring is asked only when no earlier place has the key; without the package `keyring`, or without a keyring on the system, it is passed over.

The command is split into words as a shell does, but no shell runs it.
`{provider}` in a word becomes the provider's name, which is also in the variable `CRYSTAL_KEY_PROVIDER`; the first line that it prints is the key.
It has 30 seconds.

```toml
[credentials]
key_command = "pass show api/{provider}"
```

A place that is set up and fails is an error that names the place (exit code 3), never a silent fall to the next one.
No key is ever printed: `crystal config` tells whether one was found, where, and the last four characters of a long one.
"""  # noqa: E501 - the same


def render() -> str:
    """The whole page."""
    tables: dict[str, list[Setting]] = {}
    for key, setting in SETTINGS.items():
        tables.setdefault(key.rpartition(".")[0], []).append(setting)
    parts = [HEAD, "## Settings\n"]
    for name, settings in tables.items():
        parts.append(f"### [{name}]\n" if name else "### At the top of the file\n")
        parts.extend(_section(setting) for setting in settings)
    tail = TAIL.replace("\nEMBEDDING_PROVIDERS\n", f"\n{_providers()}\n")
    return "\n".join([*parts, tail.replace("KEY_VARIABLES", _key_variables())])


def _providers() -> str:
    lines = [
        "| provider | what it is | its own address | default model | known models, numbers in a vector |",
        "|---|---|---|---|---|",
    ]
    for row in EMBEDDING_PROVIDERS.values():
        models = ", ".join(f"`{name}` {size}" for name, size in row.dimensions.items()) or "what is installed"
        address = f"`{row.base_url}`" if row.base_url else "none"
        lines.append(f"| `{row.name}` | {row.kind.value} | {address} | `{row.default_model}` | {models} |")
    return "\n".join(lines)


def _key_variables() -> str:
    rows = [row.name for row in EMBEDDING_PROVIDERS.values() if row.needs_key]
    lines = [f"| {name} | {', '.join(f'`{variable}`' for variable in variables_of(name))} |" for name in rows]
    return "\n".join(["| provider | variables, the strongest first |", "|---|---|", *lines])


def _section(setting: Setting) -> str:
    variables = ", ".join(_variable(alias) for alias in setting.variables)
    facts = [
        f"accepted: {setting.kind.accepts}",
        f"default: {setting.default_words or _default(setting.default)}",
        f"environment: {variables}",
    ]
    if setting.only_environment:
        facts.append("not in the file: the hook needs it, and reads none")
    meaning = [sentence + "." for sentence in setting.meaning.rstrip(".").split(". ")]
    return "\n".join([f"#### `{setting.key}`\n", *meaning, "", "- " + "; ".join(facts)]) + "\n"


def _variable(alias: Alias) -> str:
    condition = f" (when `{alias.when[0]}` is `{alias.when[1]}`)" if alias.when else ""
    return f"`{alias.variable}`{condition}"


def _default(value: Any) -> str:
    return "none" if value in (None, ()) else f"`{shown(value)}`"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
