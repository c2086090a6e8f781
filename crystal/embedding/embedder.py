"""Define the interface of embedders, and their errors.

This package turns texts into vectors and fills the queue of chunks that wait for one. It does not know where texts
come from or how the vectors are used; keys are passed as arguments and appear in no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # importing it takes longer than most of the work here
    import numpy as np
    import numpy.typing as npt

TokenRows: TypeAlias = "tuple[list[int], npt.NDArray[np.float32]]"
"""The tokens of a text, and their vectors of length 1: ``(tokens, dimension)``."""


class Embedder(Protocol):
    """Turn texts into vectors of ``dimension`` numbers: little-endian float32 of length 1, one ``bytes`` each.

    The attributes are known without loading anything or using a network. ``identity`` changes with any setting whose
    change could fix a failure (model, address, key); it contains no secret.
    """

    @property
    def provider(self) -> str:
        """Return the provider's name in the configuration, such as ``embedded`` or ``openai``."""

    @property
    def model(self) -> str:
        """Return the provider's name of the model."""

    @property
    def dimension(self) -> int:
        """Return the number of numbers in a vector."""

    @property
    def identity(self) -> str:
        """Return an id of the configuration that changes with it."""

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, in order.

        Raises:
            ModelUnavailableError: A later try may succeed.
            TextRefusedError: The provider refuses one of the texts.
            WrongAnswerError, DeniedError, NotConfiguredError: No try will succeed before something is changed.
        """

    def embed_query(self, text: str) -> bytes:
        """Return the vector of a question, or ``b""`` if the model knows none of its words.

        It fails like ``embed_documents``.
        """

    def take_tokens(self) -> int:
        """Return the number of tokens paid for since the last call; 0 if the model is free."""


class TokenVectors(Protocol):
    """Turns texts into the vectors of their tokens, for late interaction. Special tokens are left out.

    A text without a token may have no rows. Vectors of different models must not be compared.
    """

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """Return the tokens of each text with their vectors, in order."""
