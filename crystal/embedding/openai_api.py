"""Embeddings by OpenAI, or by any server that speaks its protocol, through the package ``openai`` (an extra).

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from crystal.config.packages import install_command
from crystal.embedding.embedder import ServerFault
from crystal.embedding.openai_answer import read_answer
from crystal.embedding.remote import Answer, Purpose
from crystal.embedding.web import (
    address,
    authorities,
    is_loopback,
    parsed,
    read_answer_bytes,
    refusal,
    unanswered,
    unreachable,
)
from crystal.errors import NotConfigured

try:
    import openai
except ImportError as missing:
    raise NotConfigured("the package openai is not installed", hint=install_command("openai")) from missing

# The library below openai changed its name (httpx, httpx2); its errors come through while a body is read.
_http: Any = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]


class OpenAI:
    """See ``Provider``. A server of the user's own may need no key."""

    most_texts = 256
    most_characters = 250_000

    def __init__(self, model: str, base_url: str, dimension: int | None, key: str) -> None:
        self.name = f"openai {model}"
        self._model = model
        self._url = address(base_url)
        self._key = key or "none"  # the library insists on one
        self._more: dict[str, Any] = {"dimensions": dimension} if dimension else {}

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> Answer:
        """Send one request, see ``Provider``; the models treat documents and queries alike."""
        del purpose
        deadline = time.monotonic() + timeout
        http = openai.DefaultHttpxClient(
            follow_redirects=False, trust_env=not is_loopback(self._url), verify=authorities(self._url)
        )
        try:
            with (
                openai.OpenAI(
                    api_key=self._key, base_url=self._url, timeout=timeout, max_retries=0, http_client=http
                ) as client,
                client.embeddings.with_streaming_response.create(
                    model=self._model, input=texts, encoding_format="float", **self._more
                ) as response,
            ):
                held = read_answer_bytes(self.name, response.iter_bytes(), deadline)
        except openai.APIStatusError as error:
            raise refusal(self.name, error.status_code, error.response.headers, error.response.content) from None
        except openai.APITimeoutError as error:
            raise unanswered(self.name, error.__cause__ or error) from error
        except openai.APIConnectionError as error:
            raise unreachable(self.name, self._url, error.__cause__ or error) from error
        except _http.TimeoutException as error:
            raise ServerFault(f"{self.name} did not finish its answer in time") from error
        except _http.HTTPError as error:
            raise unreachable(self.name, self._url, error) from error
        return read_answer(self.name, parsed(self.name, held))
