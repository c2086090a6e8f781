"""A good value of every setting, in each of its forms."""

from __future__ import annotations

from typing import Any

from crystal.config.table import SETTINGS

# A good value for every key, none of them the default: (as text, as TOML, as Config holds it).
GOOD: dict[str, tuple[str, str, Any]] = {
    "agent_id": ("cc-laptop", '"cc-laptop"', "cc-laptop"),
    "device": ("my laptop", '"my laptop"', "my laptop"),
    "role": ("device", '"device"', "device"),
    "relay.url": ("https://relay.test/", '"https://relay.test/"', "https://relay.test"),
    "relay.ca_file": ("/etc/ca.pem", '"/etc/ca.pem"', "/etc/ca.pem"),
    "relay.insecure_http": ("1", "true", True),
    "relay.key_place": ("keyring", '"keyring"', "keyring"),
    "relay.local_memory": ("no", "false", False),
    "relay.keep_days": ("30", "30", 30),
    "embedding.provider": ("voyage", '"voyage"', "voyage"),
    "embedding.model": ("voyage-3.5-lite", '"voyage-3.5-lite"', "voyage-3.5-lite"),
    "embedding.dimension": ("512", "512", 512),
    "embedding.threads": ("4", "4", 4),
    "models.hub_url": ("https://x.test/hub/", '"https://x.test/hub/"', "https://x.test/hub"),
    "embedding.base_url": ("https://x.test/v1/", '"https://x.test/v1/"', "https://x.test/v1"),
    "summary.mode": ("llm", '"llm"', "llm"),
    "summary.provider": ("google", '"google"', "google"),
    "summary.model": ("gemini-flash", '"gemini-flash"', "gemini-flash"),
    "summary.base_url": ("http://[::1]:8080", '"http://[::1]:8080"', "http://[::1]:8080"),
    "summary.consent": ("yes", "true", True),
    "summary.daily_cap_usd": ("1.25", "1.25", 1.25),
    "summary.idle_minutes": ("5", "5", 5),
    "deep.provider": ("ollama", '"ollama"', "ollama"),
    "deep.model": ("qwen3", '"qwen3"', "qwen3"),
    "deep.base_url": ("http://localhost:8080/v1/", '"http://localhost:8080/v1/"', "http://localhost:8080/v1"),
    "deep.consent": ("yes", "true", True),
    "deep.daily_cap_usd": ("1.25", "1.25", 1.25),
    "private.now": ("1", "true", True),
    "private.projects": ("/a/*:/b", '["/a/*", "/b"]', ("/a/*", "/b")),
    "isolated.projects": ("/c/*:/d", '["/c/*", "/d"]', ("/c/*", "/d")),
    "capture.transcript_folders": ("/a/*:/b", '["/a/*", "/b"]', ("/a/*", "/b")),
    "private.sessions": ("abc*:d", '["abc*", "d"]', ("abc*", "d")),
    "redact.enabled": ("off", "false", False),
    "retention.days": ("730", "730", 730),
    "search.limit": ("20", "20", 20),
    "search.recency": ("strong", '"strong"', "strong"),
    "search.fusion": ("rrf", '"rrf"', "rrf"),
    "vault.folder": ("/home/alice/Vault", '"/home/alice/Vault"', "/home/alice/Vault"),
    "mcp.aliases": ("on", "true", True),
    "mcp.global_scope": ("codex:claude-*", '["codex", "claude-*"]', ("codex", "claude-*")),
    "mcp.max_characters": ("30000", "30000", 30_000),
    "context.enabled": ("yes", "true", True),
    "context.tokens": ("300", "300", 300),
    "reflect.mode": ("auto", '"auto"', "auto"),
    "reflect.extractor": ("model", '"model"', "model"),
    "reflect.daily_cap_usd": ("1.25", "1.25", 1.25),
    "reflect.interval": ("30", "30", 30),
    "hook.wait": ("true", "true", True),
    "hook.flush_seconds": ("2.5", "2.5", 2.5),
    "credentials.keyring": ("0", "false", False),
    "credentials.key_command": ("pass show {provider}", '"pass show {provider}"', "pass show {provider}"),
}
FROM_FILE = [key for key, setting in SETTINGS.items() if not setting.only_environment]
