"""Check text that travels: names of nodes, domains and topics."""

from vivum.core.errors import UsageError


def check_text(text: str, what: str) -> str:
    """Return the text, or raise a `UsageError` if it cannot be written as UTF-8.

    Arguments of a command line that are not UTF-8 arrive as surrogates (PEP 383), which no encoder takes.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} {text!r} is not text that can be sent; write it in UTF-8") from error
    return text
