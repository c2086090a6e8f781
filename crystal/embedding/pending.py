"""Give vectors to the chunks that wait for one, in batches, after the commit that made them.

No transaction is open during a request to a provider. After any failure the chunks keep waiting and a row in
``problems`` has the time of the next try, so an outage only delays vectors and needs no action. A text that a provider
refuses is shortened, and set aside in the end; it never delays the others.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from crystal.embedding.embedder import Embedder
from crystal.errors import CrystalError, ServerFaultError, TextRefusedError, UnavailableError, WrongAnswerError
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store
from crystal.store.costs import Cost, add_cost
from crystal.store.problems import asked_seconds, clear_problem, find_problem, record_problem, rest_ms
from crystal.store.search import vectors

PART = "embedding"
PART_REFUSED = "embedding: refused texts"

BATCH = 128
PATIENCE_SECONDS = 20.0
"""Maximum wait within one run."""
QUICK_WAITS = (0.5, 2.0)
"""Seconds before the second and the third attempt of one call."""
FIRST_WAIT_MS = 30_000
MAX_WAIT_MS = 900_000
PERMANENT_WAIT_MS = 3_600_000
"""Wait after a failure that only a change of the configuration can fix."""
SUSPICIOUS_TRIES = 3
"""After this many failed runs, a server error is traced to single texts."""
CANARY = "crystal"
"""A text that every working provider accepts."""


MaySend = Callable[[Collection[int]], Collection[int]]


class EmbedReport(NamedTuple):
    """The result of a run, in chunks.

    ``embedded`` got a new vector, ``reused`` one that the same text had already, ``refused`` were set aside, ``left``
    still wait. ``problem`` is the reason for waiting, or None if only time was short.
    """

    embedded: int = 0
    reused: int = 0
    refused: int = 0
    left: int = 0
    problem: str | None = None


class EmbeddingClock(NamedTuple):
    """A monotonic clock in seconds, and a function that sleeps."""

    seconds: Callable[[], float]
    sleep: Callable[[float], None]


WATCH = EmbeddingClock(time.monotonic, time.sleep)


def embed_pending(  # noqa: PLR0913 - what a run needs, by name
    store: Store,
    embedder: Embedder,
    *,
    now: Callable[[], int] | int,
    budget_seconds: float = 60.0,
    should_stop: Callable[[], bool] = lambda: False,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda _: None,
    watch: EmbeddingClock = WATCH,
    may_send: MaySend = frozenset,
) -> EmbedReport:
    """Give vectors to waiting chunks, newest first, until none waits or the budget is spent.

    Nothing of the embedder is loaded if no chunk waits or the next try is not due. Several processes may run this in
    parallel and may be killed at any time; the next run continues.

    Args:
        store: The store, with no transaction open.
        embedder: The model; a new model fills its own generation, which serves once it is complete.
        now: The present in ms, or a function that returns it.
        budget_seconds: No new request begins later than this.
        should_stop: Called before each batch.
        batch: Chunks in a batch; providers reduce it to their limit.
        progress: Called with the number of chunks after each batch.
        watch: Measures the budget, and waits between quick retries.
        may_send: Returns those of some chunks that may be sent to the embedder; called before each request. The others
            stop waiting, and get no vector.
    """
    tell = now if callable(now) else lambda: now
    generation = vectors.find_generation(store, embedder.provider, embedder.model, embedder.dimension)
    if not vectors.pending_chunks(store, generation.id if generation else 0, 1):
        known = vectors.generations(store)
        if known in ([], [generation]):  # else an older generation must be replaced or its rest dropped
            clear_problem(store, PART)
            return EmbedReport()
    resting = find_problem(store, PART)
    if resting and (resting.retry_at or 0) > tell() and resting.cause == embedder.identity:
        left = vectors.count_pending(store, generation.id if generation else 0)
        return EmbedReport(left=left, problem=resting.message)
    run = _Run(store, embedder, tell, watch, watch.seconds() + budget_seconds, may_send)
    return run.fill(batch, should_stop, progress)


class _WithdrawnError(Exception):
    """A text of the batch was forgotten, or may no longer be sent."""


class _Run:
    """One run: its parameters and its results so far."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        now: Callable[[], int],
        watch: EmbeddingClock,
        deadline: float,
        may_send: MaySend,
    ) -> None:
        self.store, self.embedder, self.now, self.watch, self.deadline = store, embedder, now, watch, deadline
        self.may_send = may_send
        self.sent: frozenset[int] = frozenset()
        before = find_problem(store, PART)
        self.tries = before.tries if before else 0
        self.canary_lives = False
        self.embedded = self.reused = self.refused = 0

    def fill(self, batch: int, should_stop: Callable[[], bool], progress: Callable[[int], None]) -> EmbedReport:
        store, embedder, problem = self.store, self.embedder, None
        if vectors.find_generation(store, embedder.provider, embedder.model, embedder.dimension) is None:
            clear_problem(store, PART_REFUSED)
        generation = vectors.ensure_generation(store, embedder.provider, embedder.model, embedder.dimension, self.now())
        while not should_stop() and self._seconds_left() > 0:
            items = vectors.pending_chunks(store, generation, batch)
            if not items:
                vectors.promote(store, generation)
                break
            error = self._embed_sendable(generation, items)
            if error is not None:
                problem = self._record(error)
                break
            progress(len(items))
        if problem is None and self.embedded + self.reused > 0:
            clear_problem(store, PART)
        left = vectors.count_pending(store, generation)
        return EmbedReport(self.embedded, self.reused, self.refused, left, problem)

    def _embed_sendable(self, generation: int, items: Sequence[tuple[int, bytes, str]]) -> CrystalError | None:
        """Embed those chunks that may be sent; the others stop waiting."""
        idents = frozenset(ident for ident, _, _ in items)
        try:
            self.sent = frozenset(self.may_send(idents))
        except CrystalError as error:
            return error
        vectors.refuse_chunks(self.store, generation, idents - self.sent)
        try:
            return self._embed_batch(generation, [item for item in items if item[0] in self.sent])
        except _WithdrawnError:
            return None  # remaining chunks are read again

    def _embed_batch(self, generation: int, items: Sequence[tuple[int, bytes, str]]) -> CrystalError | None:
        """Embed some chunks; return the error that ends the run."""
        copied = vectors.copy_vectors(self.store, generation, ((ident, sha) for ident, sha, _ in items))
        waiting = [item for item in items if item[0] not in copied]
        fresh = {sha: text for _, sha, text in waiting}
        try:
            made = dict(zip(fresh, self._embed(list(fresh.values())) if fresh else (), strict=True))
        except CrystalError as error:
            return error
        finally:
            self._record_cost()
        usable = {sha: vector for sha, vector in made.items() if vector is not None}
        found = [(ident, usable[sha]) for ident, sha, _ in waiting if sha in usable]
        stored = vectors.put_vectors(self.store, generation, found)
        new = min(stored, len(usable))
        self.embedded += new
        self.reused += stored - new + len(copied)
        if stored == 0 and not copied and not vectors.exists(self.store, generation):
            return UnavailableError("another process has changed the embedding model")
        self._refuse(generation, waiting, usable)
        return None

    def _refuse(self, generation: int, items: Sequence[tuple[int, bytes, str]], usable: Mapping[bytes, bytes]) -> None:
        """Mark the chunks that got no vector, so that later runs skip them."""
        idents = [ident for ident, sha, _ in items if sha not in usable]
        if idents:
            vectors.refuse_chunks(self.store, generation, idents)
            self._record_refused(generation, len(idents))

    def _embed(self, texts: list[str]) -> list[bytes | None]:
        """Return the vectors of texts; None for a text that the provider refuses even when shortened."""
        try:
            return list(self._call(texts))
        except (TextRefusedError, ServerFaultError) as error:
            if isinstance(error, ServerFaultError) and self.tries < SUSPICIOUS_TRIES:
                raise
            if not self.canary_lives:  # does it refuse one text, or everything?
                self._call([CANARY])
                self.canary_lives = True
            if len(texts) == 1:
                return [self._embed_shortened(texts[0])]
        half = len(texts) // 2
        return self._embed(texts[:half]) + self._embed(texts[half:])

    def _embed_shortened(self, text: str) -> bytes | None:
        for part in (2, 4, 8):
            try:
                return self._call([text[: max(1, len(text) // part)]])[0]
            except (TextRefusedError, ServerFaultError):
                continue
        return None

    def _call(self, texts: list[str]) -> list[bytes]:
        """Embed texts; try twice more if the provider is unavailable and the remaining time allows the wait."""
        for pause in (*QUICK_WAITS, math.inf):
            if not self.sent <= frozenset(self.may_send(self.sent)):
                raise _WithdrawnError
            try:
                made = self.embedder.embed_documents(texts)
                break
            except UnavailableError as error:
                wait = max(pause, asked_seconds(error))
                if wait > min(PATIENCE_SECONDS, self._seconds_left()):
                    raise
                self.watch.sleep(wait)
        size = 4 * self.embedder.dimension
        if len(made) != len(texts) or any(len(vector) != size for vector in made):
            wanted = f"{len(texts)} of {self.embedder.dimension} numbers"
            name = f"{self.embedder.provider} {self.embedder.model}"
            raise WrongAnswerError(f"{name} gave other vectors than {wanted}")
        return made

    def _seconds_left(self) -> float:
        return self.deadline - self.watch.seconds()

    def _record_cost(self) -> None:
        """Record the cost, even if the vectors did not arrive."""
        tokens = self.embedder.take_tokens()
        if tokens:
            from crystal.config.prices import price_of

            provider, model = self.embedder.provider, self.embedder.model
            usd = price_of(provider, model).usd(tokens)
            add_cost(self.store, Cost(self.now(), "embedding", provider, model, tokens, 0, usd))

    def _record(self, error: CrystalError) -> str:
        now, cause = self.now(), self.embedder.identity
        before = find_problem(self.store, PART)
        tries = before.tries + 1 if before and before.cause == cause else 1
        message = error.message if error.hint is None else f"{error.message}; {error.hint}"
        rest = PERMANENT_WAIT_MS
        if isinstance(error, UnavailableError):
            rest = rest_ms(error, tries, FIRST_WAIT_MS, MAX_WAIT_MS)
        record_problem(self.store, PART, message, now, now + rest, cause)
        return message

    def _record_refused(self, generation: int, count: int) -> None:
        self.refused += count
        total = len(self.may_send(vectors.refused_chunks(self.store, generation)))
        message = f"{self.embedder.provider} {self.embedder.model} takes {total} of the texts not even shortened"
        record_problem(self.store, PART_REFUSED, f"{message}; keywords find them", self.now(), cause=str(generation))
