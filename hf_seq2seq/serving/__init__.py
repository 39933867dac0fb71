"""A server that translates over HTTP, for the clients of LibreTranslate and of Hugging Face.

In: models' folders, or their names on the Hub. Out: an ASGI application. Requests come to the process of the
application, which holds no model; worker processes translate. Imports `inference/`, `hub/` and the files above the
rooms.

The way of a request: guard.py (who may ask) -> app.py (paths) -> requests.py (what is asked for) -> queue.py (lines of
all requests into batches) -> worker.py (translates) -> answers.py.

The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

import lazy_loader


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
