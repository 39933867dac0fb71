"""What messages quote of the errors of other libraries."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or the name of its type where it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
