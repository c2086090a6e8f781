"""One session of Claude Code, line by line as the client writes it: the fields are its own, every text is invented.

The kinds of lines, their fields and their sizes were taken from the transcripts in tests/data/transcripts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from session_world import Client, Fields, Project
from words import LOG, PYTHON, Writer

VERSION, OLDER = "2.1.329", "2.1.197"
NEWER_KINDS = frozenset(("prompt_snapshot", "shape", "blob", "request", "state"))
MODEL = "claude-opus-5-5"
COMMANDS = ("pytest -q", "git diff", "ls -la", "npm run", "rg -n", "git log")


class Session:
    """One session being written, line by line, as the client would."""

    def __init__(self, writer: Writer, client: Client, project: Project, start: datetime) -> None:
        self.writer, self.client, self.project = writer, client, project
        self.random = writer.random
        self.now = start
        self.id = self._uuid()
        self.agent: str | None = None
        self.version = VERSION if self.random.random() < 0.67 else OLDER
        self.parent: str | None = None
        self.prompt = ""

    def subagent(self) -> Session:
        """A session of a subagent of this one, with a transcript of its own."""
        inner = Session(self.writer, self.client, self.project, self.now)
        inner.id, inner.version, inner.agent = self.id, self.version, self.writer.letters(17, "0123456789abcdef")
        return inner

    def lines(self, steps: int) -> Iterator[tuple[str, Fields]]:
        """The lines of a session of so many requests to the model: (kind, fields)."""
        for kind, fields in self._all_lines(steps):
            if self.version == VERSION or kind not in NEWER_KINDS:
                yield kind, fields

    def _all_lines(self, steps: int) -> Iterator[tuple[str, Fields]]:
        yield from self._prompt(first=True)
        yield from self._head()
        left = steps
        while True:
            burst = min(left, self.random.randint(1, 14))
            for step in range(burst):
                yield from self._step(last=step == burst - 1)
            left -= burst
            yield from self._end_of_turn()
            if left <= 0:
                return
            yield from self._prompt(first=False)

    # -- lines that carry conversation -------------------------------------------------------------------------------

    def _prompt(self, *, first: bool) -> Iterator[tuple[str, Fields]]:
        self.now += timedelta(seconds=self.random.expovariate(1 / 90))
        self.prompt = self.writer.prose(min(6000, int(self.random.lognormvariate(4.8, 1.1))))
        yield (
            "queue",
            {
                "type": "queue-operation",
                "operation": "enqueue",
                "timestamp": self._time(),
                "sessionId": self.id,
                "content": self.prompt,
            },
        )
        yield (
            "queue",
            {"type": "queue-operation", "operation": "dequeue", "timestamp": self._time(), "sessionId": self.id},
        )
        yield (
            "snapshot",
            {
                "type": "file-history-snapshot",
                "messageId": self._uuid(),
                "isSnapshotUpdate": False,
                "snapshot": {"trackedFileBackups": {}, "timestamp": self._time()},
            },
        )
        yield (
            "user",
            self.linked(
                {
                    "type": "user",
                    "message": {"role": "user", "content": self.prompt},
                    "promptSource": "sdk",
                    "permissionMode": "default",
                }
            ),
        )
        if not first:
            yield "blob", self._blob({"role": "user", "content": [{"type": "text", "text": self.prompt}]})

    def _step(self, *, last: bool) -> Iterator[tuple[str, Fields]]:
        self.now += timedelta(seconds=self.random.expovariate(1 / 8))
        yield "request", self._request()
        reply = {
            "id": "msg_01" + self.writer.letters(22),
            "role": "assistant",
            "type": "message",
            "model": MODEL,
            "stop_reason": "end_turn" if last else "tool_use",
            "stop_sequence": None,
            "usage": self._usage(),
        }
        if self.random.random() < 0.25:
            thinking = {
                "type": "thinking",
                "thinking": self.writer.prose(self.random.randint(100, 1500)),
                "signature": self.writer.letters(400),
            }
            yield "assistant", self.linked({"message": {**reply, "content": [thinking]}, "type": "assistant"})
        if last or self.random.random() < 0.5:
            size = int(self.random.lognormvariate(6.3 if last else 4.6, 0.9))
            text = {"type": "text", "text": self.writer.prose(min(size, 12_000))}
            yield "assistant", self.linked({"message": {**reply, "content": [text]}, "type": "assistant"})
        if not last:
            yield from self._tool_use(reply)

    def _tool_use(self, reply: Fields) -> Iterator[tuple[str, Fields]]:
        name, given, content, result = self._deed()
        call = "toolu_01" + self.writer.letters(22)
        block = {"type": "tool_use", "id": call, "name": name, "input": given}
        yield "assistant", self.linked({"message": {**reply, "content": [block]}, "type": "assistant"})
        asked = self.parent
        self.now += timedelta(seconds=self.random.expovariate(1 / 3))
        answer = {"tool_use_id": call, "type": "tool_result", "content": content}
        yield (
            "result",
            self.linked(
                {
                    "type": "user",
                    "message": {"role": "user", "content": [answer]},
                    "toolUseResult": result,
                    "sourceToolAssistantUUID": asked,
                }
            ),
        )

    def _deed(self) -> tuple[str, Fields, object, object]:
        """What a tool does: its name, its input, its result for the model and the client's own record of it."""
        chance = self.random.random()
        path, lines = self.random.choice(list(self.project.files.items()))
        if chance < 0.30:
            return self._read(path, lines)
        if chance < 0.50:
            return self._edit(path, lines)
        if chance < 0.56:
            lines[:] = self.writer.lines(PYTHON, self.project.names, self.random.randint(20, 250))
            text = "\n".join(lines)
            record = {"type": "create", "filePath": path, "content": text, "structuredPatch": [], "originalFile": None}
            return "Write", {"file_path": path, "content": text}, f"File created successfully at: {path}", record
        if chance < 0.57:
            data = self.writer.picture(self.random.randint(20_000, 200_000))
            source = {"type": "base64", "data": data, "media_type": "image/png"}
            record = {
                "type": "image",
                "file": {"base64": data, "type": "image/png", "originalSize": len(data) * 3 // 4},
            }
            return "Read", {"file_path": path + ".png"}, [{"type": "image", "source": source}], record
        if chance < 0.58:
            return self._shell("cat .env", self.writer.settings_file())
        count = min(1500, int(self.random.lognormvariate(2.6, 1.3)) + 1)
        command = f"{self.random.choice(COMMANDS)} {' '.join(self.writer.words(2))}"
        return self._shell(command, "\n".join(self.writer.lines(LOG, self.project.names, count)))

    def _shell(self, command: str, output: str) -> tuple[str, Fields, object, object]:
        record = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        return "Bash", {"command": command, "description": " ".join(self.writer.words(5))}, output, record

    @staticmethod
    def _read(path: str, lines: list[str]) -> tuple[str, Fields, object, object]:
        shown = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))
        file = {
            "filePath": path,
            "content": "\n".join(lines),
            "numLines": len(lines),
            "startLine": 1,
            "totalLines": len(lines),
        }
        return "Read", {"file_path": path}, shown, {"type": "text", "file": file}

    def _edit(self, path: str, lines: list[str]) -> tuple[str, Fields, object, object]:
        before = "\n".join(lines)
        at = self.random.randrange(len(lines))
        count = self.random.randint(1, 12)
        old, new = lines[at : at + count], self.writer.lines(PYTHON, self.project.names, self.random.randint(1, 15))
        lines[at : at + count] = new
        patch = {
            "oldStart": at,
            "oldLines": count,
            "newStart": at,
            "newLines": len(new),
            "lines": [*("-" + line for line in old), *("+" + line for line in new)],
        }
        strings = {"oldString": "\n".join(old), "newString": "\n".join(new)}
        record = {
            "filePath": path,
            **strings,
            "originalFile": before,
            "structuredPatch": [patch],
            "userModified": False,
        }
        given = {
            "replace_all": False,
            "file_path": path,
            "old_string": strings["oldString"],
            "new_string": strings["newString"],
        }
        return "Edit", given, f"The file {path} has been updated successfully.", record

    # -- the client's bookkeeping ------------------------------------------------------------------------------------

    def _head(self) -> Iterator[tuple[str, Fields]]:
        client = self.client
        for name, reminder in client.reminders.items():
            extra: Fields = {"content": client.skills} if name == "skill_listing" else {}
            if name == "agent_listing_delta":
                extra = {"addedLines": client.agents, "removedTypes": []}
            yield "attachment", self._attachment({"type": name, **extra}, rendered=[{"content": reminder}])
        yield "prompt_snapshot", self._attachment({"type": "prompt_snapshot", "systemPrompt": client.system})
        shape = {"system": [{"type": "text", "text": text} for text in client.system], "tools": client.tools}
        yield (
            "shape",
            {
                "type": "api-request-shape",
                "sessionId": self.id,
                "shapeHash": self.writer.letters(124, "0123456789abcdef"),
                "timestamp": self._time(),
                "version": VERSION,
                "shape": shape,
            },
        )
        yield "blob", self._blob({"role": "user", "content": [{"type": "text", "text": self.prompt}]})
        yield (
            "blob",
            self._blob(
                {"role": "system", "content": [{"type": "text", "text": client.reminders["deferred_tools_delta"]}]}
            ),
        )
        wrapped = [{"name": tool["name"], "description": tool["description"], "schema": tool} for tool in client.tools]
        yield (
            "prompt_snapshot",
            self._attachment(
                {
                    "type": "prompt_snapshot",
                    "systemPrompt": client.system,
                    "tools": wrapped,
                    "contextRendering": "announced",
                }
            ),
        )

    def _end_of_turn(self) -> Iterator[tuple[str, Fields]]:
        common = {"type": "system", "level": "suggestion", "isMeta": False}
        yield (
            "system",
            self.linked(
                {
                    **common,
                    "subtype": "stop_hook_summary",
                    "hookCount": 1,
                    "hookErrors": [],
                    "hookInfos": [
                        {"command": "/home/dev/.venv/bin/python -I -S /home/dev/crystal/hook/main.py", "durationMs": 31}
                    ],
                    "hasOutput": False,
                }
            ),
        )
        yield "system", self.linked({**common, "subtype": "turn_duration", "durationMs": self.random.randrange(90_000)})
        yield (
            "state",
            {"type": "last-prompt", "lastPrompt": self.prompt[:200], "leafUuid": self.parent, "sessionId": self.id},
        )
        yield "state", {"type": "mode", "mode": "normal", "sessionId": self.id}
        yield (
            "state",
            {
                "type": "cost-state",
                "sessionId": self.id,
                "totalCostUSD": self.random.random(),
                "modelUsage": {MODEL: self._usage()},
                "totalAPIDuration": self.random.randrange(10**6),
                "hasUnknownModelCost": False,
            },
        )

    def _request(self) -> Fields:
        digest = self.writer.letters(124, "0123456789abcdef")
        return {
            "type": "api-request",
            "sessionId": self.id,
            "id": self._uuid(),
            "timestamp": self._time(),
            "version": VERSION,
            "querySource": "sdk",
            "shapeHash": digest,
            "params": {
                "model": MODEL,
                "max_tokens": 128_000,
                "betas": ["interleaved-thinking-2025-05-14", "context-management-2025-06-27", "effort-2025-11-24"],
            },
            "keep": self.random.randrange(200),
            "tail": [digest, digest[::-1]],
            "requestDigest": digest[::2],
            "cacheControl": [{"path": ["system", 0], "value": {"type": "ephemeral"}}] * 3,
        }

    def _blob(self, message: Fields) -> Fields:
        return {
            "type": "api-request-blob",
            "sessionId": self.id,
            "hash": self.writer.letters(124, "0123456789abcdef"),
            "message": message,
        }

    def _attachment(self, attachment: Fields, **more: object) -> Fields:
        return self.linked({"attachment": attachment, "type": "attachment", **more})

    def _usage(self) -> Fields:
        number = self.random.randrange
        return {
            "input_tokens": number(9000),
            "cache_creation_input_tokens": number(20_000),
            "service_tier": "standard",
            "cache_read_input_tokens": number(150_000),
            "output_tokens": number(2000),
            "inference_geo": "",
            "iterations": [],
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": number(20_000)},
            "speed": "standard",
        }

    def linked(self, fields: Fields) -> Fields:
        """A line of the session's chain: with its own uuid, and that of the line before."""
        own = self._uuid()
        sidechain = {"isSidechain": False} if self.agent is None else {"isSidechain": True, "agentId": self.agent}
        line = {
            "parentUuid": self.parent,
            **sidechain,
            **fields,
            "uuid": own,
            "timestamp": self._time(),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self.project.cwd,
            "sessionId": self.id,
            "version": self.version,
            "gitBranch": "main",
        }
        self.parent = own
        return line

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _time(self) -> str:
        self.now += timedelta(milliseconds=self.random.randrange(1, 40))
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now.microsecond // 1000:03d}Z"
