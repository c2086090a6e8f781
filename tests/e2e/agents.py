"""The other agents' real programs, from npm, each in a home of its own and with a model of ours.

A row of ``AGENTS`` says what to install, what the program's settings must hold to talk to the model, and how to ask it
one thing. ``config`` names the file that crystal's entries go into, ``user_hook`` what its user had put there before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True)
class Agent:
    """One program.

    Attributes:
        name: As in ``crystal init --agent``.
        packages: What npm installs; ``node`` where the program needs a newer one.
        program: The command.
        arguments: Its arguments; the prompt follows.
        files: For the model's address, the files below the home that it needs, with their texts.
        env: For the model's address, its environment.
        first: Commands to run once, before the first prompt.
        last: The command that ends what the program leaves running.
    """

    name: str
    packages: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]
    files: Settings
    env: Settings = field(default=lambda _: {})
    first: Callable[[str], tuple[str, ...]] = field(default=lambda _: ())
    last: tuple[str, ...] = ()


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _user_hook(event: str, timeout: int) -> dict[str, Any]:
    """The user's own hook, beside which ours must work: it leaves a file."""
    entry = {"type": "command", "command": "touch $HOME/the-users-hook", "timeout": timeout}
    return {"hooks": {event: [{"hooks": [entry]}]}}


def _codex_toml(url: str) -> str:
    return (
        'model = "mock-model"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n'
        f'model_auto_compact_token_limit = 50000\n[analytics]\nenabled = false\n[model_providers.mock]\nname = "mock"\nbase_url = "{url}/v1"\n'
        'env_key = "MOCK_KEY"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )


def _openclaw_provider(url: str) -> dict[str, Any]:
    free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    model = {**MOCK, **LIMITS, "reasoning": False, "input": ["text"], "cost": free}
    return {"baseUrl": f"{url}/v1", "apiKey": "not-a-key", "api": "openai-completions", "models": [model]}


GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}
MOCK = {"id": "mock-model", "name": "Mock"}
LIMITS = {"contextWindow": 100000, "maxTokens": 8000}

AGENTS = (
    Agent(
        "gemini-cli",
        ("@google/gemini-cli@0.61.0",),
        "gemini",
        ("-y", "--skip-trust", "-m", "gemini-2.5-flash", "-p"),
        lambda _: {".gemini/settings.json": _json({**GEMINI_SETTINGS, **_user_hook("AfterAgent", 5000)})},
        lambda url: {"GEMINI_API_KEY": "not-a-key", "GOOGLE_GEMINI_BASE_URL": url},
    ),
    Agent(
        "copilot-cli",
        ("@github/copilot@1.0.102",),
        "copilot",
        ("--allow-all-tools", "-p"),
        lambda _: {
            ".copilot/hooks/mine.json": _json(
                {
                    "version": 1,
                    "hooks": {"agentStop": [{"type": "command", "bash": "touch $HOME/the-users-hook"}]},
                }
            )
        },
        lambda url: {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "not-a-key",
            "COPILOT_MODEL": "mock-model",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "100000",
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8000",
        },
    ),
    Agent(
        "pi",
        ("node@24", "@earendil-works/pi-coding-agent@1.6.0"),
        "pi",
        ("--provider", "mock", "--model", "mock-model", "-p"),
        lambda url: {
            ".pi/agent/models.json": _json(
                {
                    "providers": {
                        "mock": {
                            "baseUrl": f"{url}/v1",
                            "apiKey": "not-a-key",
                            "api": "openai-completions",
                            "models": [{**MOCK, **LIMITS, "reasoning": False}],
                        }
                    }
                }
            ),
            ".pi/agent/settings.json": _json({"compaction": {"keepRecentTokens": 100}}),
            ".pi/agent/extensions/mine.ts": 'import { writeFileSync } from "node:fs";\n'
            "export default (pi: any) => pi.on('agent_end', async () => "
            'writeFileSync(process.env.HOME + "/the-users-hook", ""));\n',
        },
        lambda _: {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    ),
    Agent(
        "cline",
        ("cline@3.0.65",),
        "cline",
        ("-P", "openai-compatible", "-m", "mock-model", "--json"),
        lambda _: {".cline/hooks/TaskStart": "#!/bin/sh\ntouch $HOME/the-users-hook\necho '{}'\n"},
        lambda _: {"CLINE_TELEMETRY_DISABLED": "1"},
        lambda url: ("auth", "-p", "openai-compatible", "-k", "not-a-key", "-m", "mock-model", "-b", f"{url}/v1"),
        ("hub", "stop"),
    ),
    Agent(
        "codex",
        ("@openai/codex@0.171.0",),
        "codex",
        # Trust in a hook is given in the terminal; this is the program's own way around it, for tests.
        (
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-hook-trust",
        ),
        lambda url: {
            ".codex/config.toml": _codex_toml(url),
            ".codex/hooks.json": _json(_user_hook("Stop", 3)),
        },
        lambda _: {"MOCK_KEY": "not-a-key"},
    ),
    Agent(
        "qwen-code",
        ("node@24", "@qwen-code/qwen-code@0.24.4"),
        "qwen",
        ("-y", "-m", "mock-model", "-p"),
        lambda _: {
            ".qwen/settings.json": _json(
                {
                    **GEMINI_SETTINGS,
                    "security": {"auth": {"selectedType": "openai"}},
                    **_user_hook("Stop", 5000),
                    "$version": 4,  # else it adds this line itself
                }
            )
        },
        lambda url: {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": f"{url}/v1"},
    ),
    Agent(
        "droid",
        ("droid@0.215.0",),
        "droid",
        ("exec", "-m", "custom:mock-model", "--auto", "high"),
        lambda url: {
            ".factory/settings.json": _json(
                {
                    "customModels": [
                        {
                            "model": "mock-model",
                            "displayName": "Mock",
                            "baseUrl": f"{url}/v1",
                            "apiKey": "not-a-key",
                            "provider": "generic-chat-completion-api",
                            "maxOutputTokens": 8000,
                        }
                    ],
                    "cloudSessionSync": False,
                    **_user_hook("Stop", 10),
                }
            )
        },
    ),
    Agent(
        "opencode",
        ("opencode-ai@1.18.33",),
        "opencode",
        ("run",),
        lambda url: {
            ".config/opencode/opencode.json": _json(
                {
                    "$schema": "https://opencode.ai/config.json",  # else it adds this line itself
                    "autoupdate": False,
                    "share": "disabled",
                    "model": "mock/mock-model",
                    "small_model": "mock/mock-model",
                    "provider": {
                        "mock": {
                            "npm": "@ai-sdk/openai-compatible",
                            "name": "Mock",
                            "options": {"baseURL": f"{url}/v1", "apiKey": "not-a-key"},
                            "models": {"mock-model": {"name": "Mock", "limit": {"context": 100000, "output": 8000}}},
                        }
                    },
                }
            ),
            ".config/opencode/plugin/mine.js": 'import { writeFileSync } from "node:fs";\n'
            "export const Mine = async () => ({ event: async ({ event }) => event.type === 'session.idle' && "
            'writeFileSync(process.env.HOME + "/the-users-hook", "") });\n',
        },
        lambda _: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
    ),
    Agent(
        "goose",
        ("@aaif/goose-acp@1.50.0",),
        "goose",
        ("run", "--text"),
        lambda _: {
            ".agents/plugins/mine/plugin.json": _json({"name": "mine", "version": "1.0.0", "description": "mine"}),
            ".agents/plugins/mine/hooks/hooks.json": _json(_user_hook("Stop", 10)),
        },
        # Its config.yaml is left to itself: it writes there which plugins it has found.
        lambda url: {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "mock-model",
            "GOOSE_MODE": "auto",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_AUTO_COMPACT_THRESHOLD": "0.5",
            "OPENAI_API_KEY": "not-a-key",
            "OPENAI_HOST": url,
        },
    ),
    Agent(
        "openclaw",
        ("node@24", "openclaw@2026.9.6"),
        "openclaw",
        ("agent", "--local", "--session-key", "agent:main:one", "--message"),
        lambda url: {
            ".openclaw/openclaw.json": _json(
                {
                    "models": {"providers": {"mock": _openclaw_provider(url)}},
                    "agents": {"defaults": {"model": {"primary": "mock/mock-model"}, "workspace": "~/project"}},
                    "update": {"checkOnStart": False},
                    "plugins": {
                        "load": {"paths": ["~/mine"]},
                        "entries": {"mine": {"enabled": True, "hooks": {"allowConversationAccess": True}}},
                    },
                }
            ),
            "mine/package.json": _json({"name": "mine", "type": "module", "openclaw": {"extensions": ["./index.js"]}}),
            "mine/openclaw.plugin.json": _json({"id": "mine", "configSchema": {"type": "object", "properties": {}}}),
            "mine/index.js": 'import { writeFileSync } from "node:fs";\nexport default { id: "mine", register: (api) => '
            'api.on("agent_end", () => writeFileSync(process.env.HOME + "/the-users-hook", "")) };\n',
        },
        lambda _: {"OPENCLAW_HIDE_BANNER": "1"},
    ),
)
