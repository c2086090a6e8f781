"""Define all settings: key, kind, default, meaning and variables of each.

The loader, ``crystal config`` and the reference page are made from this table; a new setting is one new field of
``Config``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crystal.config.kinds import AGENT, BOOLEAN, FOLDERS, PATTERNS, TEXT, URL, choice, number, whole
from crystal.config.paths import Places
from crystal.config.providers import EMBEDDING_PROVIDERS, NO_PROVIDER, SUMMARIZERS, WRITERS
from crystal.config.setting import Alias, Setting, SettingValues, meant, only_for, setting
from crystal.errors import UsageError

__all__ = ["SETTINGS", "TABLES", "Alias", "Config", "Setting", "setting_for", "unknown_key"]

_ROWS = EMBEDDING_PROVIDERS.values()


def _writer_model(what: str) -> str | None:
    openai = SUMMARIZERS["openai"][1]
    words = f"the provider's small model; for openai `{openai}`"
    return setting(None, TEXT, f"The model that {what}, by its provider's name for it.", default_words=words)


def _writer_url(table: str) -> str | None:
    return setting(
        None,
        URL,
        f"The address of `{table}.provider`: any server that speaks OpenAI's protocol, or Ollama.",
        only_for(f"{table}.provider", "ollama", "CRYSTAL_OLLAMA_HOST"),
        only_for(f"{table}.provider", "openai", "OPENAI_BASE_URL"),
        default_words=f"the provider's public address; for ollama `{SUMMARIZERS['ollama'][0]}`",
    )


class Config(SettingValues):
    """The settings of one run; attribute ``table_key`` has the value of key ``table.key``. Made by ``load_config``.

    ``sources`` has the source of each key's value; an absent key has its default. ``isolated`` contains the agents with
    ``agents.NAME.isolated``. ``reload`` loads the present settings, ``stamp`` is the file's state when it was read.
    """

    places: Places
    sources: Mapping[str, str]
    isolated: frozenset[str]
    reload: Callable[[], Config]
    stamp: str

    agent_id: str = setting("cc-mini", AGENT, "The agent id under which this machine's conversations are stored.")
    device: str = setting(
        "", TEXT, "This machine's name, stored with everything captured here.", default_words="the host name"
    )
    role: str = setting(
        "standalone",
        choice("standalone", "home", "device"),
        "This machine's role: `standalone` works alone, `home` has the memory of several machines, `device` "
        "sends to home. Changed by `crystal init --role`, `crystal promote` and `crystal demote`, not by hand.",
    )
    relay_url: str | None = setting(
        None, URL, "The relay's address: https, or http on this machine.", default_words="no relay"
    )
    relay_ca_file: str | None = setting(
        None,
        TEXT,
        "The certificate, as a PEM file, of a private authority that the relay's own certificate is signed by.",
        default_words="the system's authorities",
    )
    relay_insecure_http: bool = setting(
        False,
        BOOLEAN,
        "Whether the relay may be asked over plain http on another machine. Blobs are sealed all the same, but the "
        "token can be read on the way.",
    )
    relay_key_place: str | None = setting(
        None,
        choice("file", "keyring", "command"),
        "Where the relay's key and token are kept: `file` (in the data folder, for you alone), the system's `keyring`, "
        "or what `credentials.key_command` prints. If that place fails, crystal reports an error.",
        default_words="`file`",
    )
    relay_local_memory: bool = setting(
        True,
        BOOLEAN,
        "Whether a device keeps a memory of its own besides sending to home. Without it, search on the device finds "
        "what home's mirror has.",
    )
    relay_keep_days: int = setting(
        14,
        whole(1, 3650),
        "How long a device keeps a sealed blob after home's receipt, for a home machine restored from a backup.",
    )
    embedding_provider: str = setting(
        "embedded",
        choice(*EMBEDDING_PROVIDERS, NO_PROVIDER),
        "The provider of vectors. `embedded` needs no key and no network; `local` is an installed model, see "
        "`crystal models`; with `none`, search uses keywords alone.",
    )
    embedding_model: str | None = setting(
        None,
        TEXT,
        "The embedding model, by its provider's name for it.",
        *(only_for("embedding.provider", row.name, name) for row in _ROWS for name in row.model_variables),
        default_words="the provider's usual model",
    )
    embedding_dimension: int | None = setting(
        None,
        whole(1, 8192),
        "The dimension of vectors, for models with a choice of dimensions or unknown to crystal.",
        default_words="the model's own",
    )
    embedding_base_url: str | None = setting(
        None,
        URL,
        "The embedding provider's address, for a server of your own or a proxy.",
        *(only_for("embedding.provider", row.name, name) for row in _ROWS for name in row.url_variables),
        default_words="the provider's own address",
    )
    embedding_threads: int = setting(2, whole(1, 64), "How many processors an installed model may use at most.")
    models_hub_url: str = setting(
        "https://huggingface.co",
        URL,
        "Where `crystal models install` fetches models: the hub, or a mirror of it.",
        Alias("HF_ENDPOINT"),
    )
    summary_mode: str = setting(
        "auto",
        choice("simple", "llm", "auto"),
        "How a session's summary is written: `simple` from its own words, `llm` by a model, "
        "`auto` by a model when a key and `summary.consent` exist.",
    )
    summary_provider: str = setting(
        "openai",
        choice(*WRITERS),
        "The provider of the model that writes summaries and, with `reflect.extractor`, finds memories. `claude` and "
        "`codex` are your own programs, run as `claude -p` and `codex exec`.",
    )
    summary_model: str | None = _writer_model("writes summaries")
    summary_base_url: str | None = _writer_url("summary")
    summary_consent: bool = setting(
        False,
        BOOLEAN,
        "Whether condensed conversations may be sent to the summary provider, and your own sentences for "
        "`reflect.extractor`. Nothing is sent without it, except to a model on this machine.",
    )
    summary_daily_cap_usd: float = setting(
        0.5,
        number(0, 1000),
        "The daily limit for the cost of summaries, in US dollars. Above it, summaries are written by `simple`.",
    )
    summary_idle_minutes: int = setting(
        30, whole(1, 10_080), "How long a session must be idle before its summary is written or updated."
    )
    private_now: bool = setting(
        False,
        BOOLEAN,
        "Do not record sessions that run with it.",
        Alias("CRYSTAL_PRIVATE"),
        only_environment=True,
    )
    capture_transcript_folders: tuple[str, ...] = setting(
        (),
        FOLDERS,
        "Patterns of further folders that transcripts may lie in, or that links in Claude Code's folder may lead to. "
        "Any other file that a hook names is not opened.",
    )
    private_projects: tuple[str, ...] = setting(
        (), FOLDERS, "Patterns of project folders. What is said in such a folder, or below it, is never recorded."
    )
    private_sessions: tuple[str, ...] = setting((), PATTERNS, "Patterns of session ids that are never recorded.")
    isolated_projects: tuple[str, ...] = setting(
        (), FOLDERS, "Patterns of project folders. Only agents that work in such a folder see what was said in it."
    )
    redact_enabled: bool = setting(
        True,
        BOOLEAN,
        "Whether keys, tokens and passwords are redacted before anything is stored. "
        "`<private>` spans are always removed.",
    )
    retention_days: int | None = setting(
        None,
        whole(1, 36_500),
        "After how many days messages are forgotten; memories stay. Deletion begins a day after "
        "it was set; on a device it does nothing, home decides.",
        default_words="never",
    )
    search_limit: int = setting(10, whole(1, 1000), "How many hits a search shows.")
    search_recency: str = setting(
        "light",
        choice("off", "light", "strong"),
        "How much search prefers newer hits among those that are nearly as good. It never hides an older one.",
    )
    search_fusion: str = setting(
        "weighted",
        choice("weighted", "rrf", "similarity"),
        "How search combines keywords and vectors: by their scores, or by reciprocal ranks (k = 60). With "
        "`similarity` it asks vectors alone, and each score is a cosine from 0 to 1.",
    )
    vault_folder: str | None = setting(
        None,
        TEXT,
        "The folder in which `crystal vault sync` keeps memories as Markdown files. `crystal vault sync --to` sets it.",
        default_words="none",
    )
    mcp_aliases: bool = setting(
        False,
        BOOLEAN,
        "Whether the MCP server also offers the tools `search_memory`, `get_recent_conversations`, `save_memory`, "
        "`memory_search`, `read_memory` and `write_memory`, for instructions that were written for other memories.",
    )
    mcp_global_scope: tuple[str, ...] = setting(
        (),
        PATTERNS,
        "Agents, by patterns of their names such as `claude-code`, that may use the scope `global` of `read_memory` "
        "and `write_memory`. The others use `project` alone.",
    )
    mcp_max_characters: int = setting(
        20_000, whole(2_000, 500_000), "How long an answer of a tool of the MCP server may be."
    )
    deep_provider: str = setting(
        "none",
        choice("none", *SUMMARIZERS),
        "The provider of the model that `crystal search --deep` asks for other wordings and for the order of "
        "hits. It is sent the question and the passages that come first.",
    )
    deep_model: str | None = _writer_model("deep search asks")
    deep_base_url: str | None = _writer_url("deep")
    deep_consent: bool = setting(
        False,
        BOOLEAN,
        "Whether deep search may send questions and passages to a provider on another machine. One on this machine "
        "needs no consent.",
    )
    deep_daily_cap_usd: float = setting(
        0.25,
        number(0, 1000),
        "The daily limit for the cost of deep searches, in US dollars. Above it, they are ordinary searches.",
    )
    context_enabled: bool | None = setting(
        None,
        BOOLEAN,
        "Whether a new session gets the most useful memories and the last sessions of its project as context. "
        "`false` leaves that out while `assist.mode` is `on`; `true` gives it alone.",
        default_words="true while `assist.mode` is `on`",
    )
    context_tokens: int = setting(600, whole(100, 10_000), "About how many tokens the context may take.")
    assist_mode: str = setting(
        "ask",
        choice("on", "off", "ask"),
        "Whether crystal tells your agents facts at the moments that the settings below choose, and when a session "
        "begins (`context.enabled`). "
        "`ask` is `off` until `crystal init` has asked.",
    )
    assist_prompt: bool = setting(True, BOOLEAN, "Tell, with a prompt that shows an error, what cured it before.")
    assist_edit: bool = setting(
        True, BOOLEAN, "Tell at an edit why its lines were written, and what failed after edits of the file."
    )
    assist_failure: bool = setting(True, BOOLEAN, "Tell after a failed command what cured the same error before.")
    assist_compaction: bool = setting(True, BOOLEAN, "Tell after a compaction what the client's summary left out.")
    assist_subagent: bool = setting(True, BOOLEAN, "Tell a subagent what its session has decided and done so far.")
    assist_tokens: int = setting(
        2_000, whole(100, 100_000), "About how many tokens of such facts one session gets at most."
    )
    reflect_mode: str = setting(
        "propose",
        choice("off", "propose", "auto"),
        "What happens to memories learned from sessions: `propose` waits for your `crystal memories review`, "
        "`auto` keeps the certain ones at once, `off` learns nothing.",
    )
    reflect_extractor: str = setting(
        "rules",
        choice("rules", "model"),
        "What finds memories in your sentences: `rules` on this machine, or the `model` of `summary.provider`, which "
        "is sent them if `summary.consent` is true. A model on this machine needs no consent.",
    )
    reflect_daily_cap_usd: float = setting(
        0.25,
        number(0, 1000),
        "The most that learning with a model may cost a day, in US dollars. Above it, sessions wait for the next day.",
    )
    reflect_interval: int = setting(15, whole(1, 10_080), "After how many minutes sessions are read again for that.")
    hook_wait: bool = setting(
        False,
        BOOLEAN,
        "Let the hook wait until its turn is stored, for containers that vanish when the client ends.",
        only_environment=True,
    )
    hook_flush_seconds: float = setting(
        5.0, number(0, 60), "How long the worker waits for the client to write the last answer into the transcript."
    )
    credentials_keyring: bool = setting(True, BOOLEAN, "Whether API keys are looked for in the system's keyring.")
    credentials_key_command: str | None = setting(
        None,
        TEXT,
        "A command that prints an API key, asked last. No shell runs it; `{provider}` becomes the provider's name.",
        Alias("CRYSTAL_KEY_COMMAND"),
    )

    def value(self, key: str) -> Any:
        """Return the value of a dotted key.

        Raises:
            UsageError: There is no such key.
        """
        if key not in SETTINGS:
            return setting_for(key).key.split(".")[1] in self.isolated
        return getattr(self, SETTINGS[key].attribute)

    def hidden_from(self, agent: str | None) -> tuple[str, ...]:
        """Return the agents whose conversations ``agent`` may not see; None stands for an unknown agent."""
        return tuple(sorted(self.isolated - {agent}))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return all keys: those of the table, and those of isolated agents."""
        return (*SETTINGS, *(f"agents.{name}.isolated" for name in sorted(self.isolated)))

    def origin(self, key: str) -> str:
        """Return the source of a key's value: ``flag``, ``environment NAME``, ``file PATH`` or ``default``.

        Raises:
            UsageError: There is no such key.
        """
        return self.sources.get(setting_for(key).key, "default")

    @property
    def tells_at_start(self) -> bool:
        """Return whether a session gets context when it begins."""
        return self.assist_mode == "on" if self.context_enabled is None else self.context_enabled

    @property
    def assist_moments(self) -> tuple[str, ...]:
        """Return the moments at which assist gives facts to the agent."""
        names = ("prompt", "edit", "failure", "compaction", "subagent")
        moments = [name for name in names if getattr(self, f"assist_{name}")]
        return tuple(moments) if self.assist_mode == "on" else ()


SETTINGS: Mapping[str, Setting] = {
    one.key: one for one in (one.named(name) for name, one in vars(Config).items() if isinstance(one, Setting))
}
TABLES = frozenset({"agents", *(key.partition(".")[0] for key in SETTINGS if "." in key)})


def setting_for(key: str) -> Setting:
    """Return the setting of a dotted key.

    Raises:
        UsageError: There is none; the hint names the most similar key.
    """
    if key in SETTINGS:
        return SETTINGS[key]
    if key.startswith("agents.") and key.endswith(".isolated"):
        return _isolation_of(key)
    raise unknown_key(key)


def _isolation_of(key: str) -> Setting:
    from crystal.config.harnesses import HARNESSES  # noqa: PLC0415 - few isolate an agent, and every turn loads this file

    name = key.removeprefix("agents.").removesuffix(".isolated")
    if name not in HARNESSES:
        raise UsageError(f"there is no agent {name!r}; known: {', '.join(HARNESSES)}", hint="use one of these names")
    return Setting(key, False, BOOLEAN, "")


def unknown_key(key: str, place: str = "") -> UsageError:
    """Return the error for an unknown key, with the key that was probably meant."""
    import shlex  # noqa: PLC0415 - for an error alone, and every hook's worker loads this file

    other = (
        f"remove it: crystal config unset {shlex.quote(key)}" if place else "to see all settings: crystal config list"
    )
    hint = meant(key, SETTINGS) or other
    return UsageError(f"{place}there is no setting {key!r}", hint=hint)
