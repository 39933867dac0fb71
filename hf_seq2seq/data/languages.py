"""How languages are named in files: `en` stands for en, en-GB and EN_US."""


def is_language(tag: str, wanted: str) -> bool:
    """Returns whether a tag names a language that is asked for, or a variety of it.

    This is the basic filtering of RFC 4647, section 3.3.1, and takes `_` for `-`.

    Args:
        tag: The tag of a text, such as "en-GB".
        wanted: The language that is asked for, such as "en", or a variety, such as "en-gb".
    """
    tag, wanted = (name.replace("_", "-").lower() for name in (tag, wanted))
    return tag == wanted or tag.startswith(f"{wanted}-")


def check_languages(source_language: str | None, target_language: str | None, file: object) -> tuple[str, str]:
    """Returns the two languages of a file whose sides are languages.

    Raises:
        ValueError: If one is not given, or both are the same.
    """
    if source_language is None or target_language is None:
        missing = "source_language" if source_language is None else "target_language"
        raise ValueError(f'`{missing}` must name a language of `{file}`, such as "en", but is not given.')
    if is_language(source_language, target_language) or is_language(target_language, source_language):
        raise ValueError(
            f"`target_language` must be another language than `source_language` ({source_language!r}), but is "
            f"{target_language!r} instead."
        )
    return source_language, target_language
