"""Deep search: a model words the question in other ways, and puts the best candidates into order.

Off by default, and optional: after any failure the search continues without a model, and the reason
is kept for ``--explain``. What a model says is used as words to search for or as an order of numbers, and as nothing
else; what it is shown are the question and passages that the search found, fenced as data. Why it is done this way:
docs/adr/0016-deep-search.md.
"""

from crystal.search.deep.asker import Asker, ChatAsker
from crystal.search.deep.session import Deep

__all__ = ["Asker", "ChatAsker", "Deep"]
