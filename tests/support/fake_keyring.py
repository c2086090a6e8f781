"""A keyring in memory that can be made to fail."""

from __future__ import annotations

from keyring.backend import KeyringBackend


class FakeKeyring(KeyringBackend):
    """A keyring in memory that can be made to fail."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.failure: Exception | None = None
        self.forgets = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.failure:
            raise self.failure
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.failure:
            raise self.failure
        if not self.forgets:
            self.entries[service, username] = password
