"""Reads translation memories in TMX 1.1 to 1.4 (https://www.gala-global.org/tmx-14b), and fills in their targets.

lxml reads a memory unit by unit, so that one of any size needs little room. Nothing but the file is read: a DTD that
it names is not, and a memory that declares entities of its own is refused.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

from lxml import etree

from hf_seq2seq.text_lines import as_one_line, is_blank

from .languages import is_language
from .lines import unpacked


InlineTags = Literal["drop", "keep"]

# Elements inside a segment that hold codes of the original document. `hi` holds a part of the sentence.
_CODES = ("bpt", "ept", "ph", "it", "ut", "sub")
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# XML has no way to write these.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Memory:
    """A memory that is being read.

    Attributes:
        file: The file.
        start: What stands before the first unit, as XML: the header and its surroundings. Known with the first unit.
        end: What stands after the last one.
        languages: The languages of the units so far, in the order of their first segments.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.start = self.end = ""
        self.languages: dict[str, None] = {}

    def units(self) -> Iterator[Any]:
        """Yields the units, each an element that holds until the next one is asked for.

        Raises:
            ValueError: If the file is no well-formed XML, no memory, or declares entities.
        """
        num_units = 0
        with self.file.open("rb") as file, unpacked(file, str(self.file)) as stream:
            events = etree.iterparse(
                stream,
                ("start", "end"),
                tag=("{*}tmx", "{*}body", "{*}tu"),
                resolve_entities=False,
                load_dtd=False,
            )
            try:
                for event, element in events:
                    if event == "start":
                        self._look_at_start(element)
                    elif _name(element) == "tu":
                        num_units += 1
                        self._check_entities(element)
                        self.languages.update(dict.fromkeys(map(language_of, _variants(element))))
                        yield element
                        _forget(element)
                _check_root(events.root, self.file)
                if not self.start:
                    raise ValueError(f"`{self.file}` must have its units in a <body>, but has none. Export it again.")
            except etree.XMLSyntaxError:
                raise self._no_xml(events.error_log, num_units) from None

    def _look_at_start(self, element: Any) -> None:
        """Checks the outermost element, and keeps what stands before the first unit."""
        parent = element.getparent()
        if parent is None:
            _check_root(element, self.file)
        elif _name(element) == "body":
            shell = etree.Element(parent.tag, parent.attrib, nsmap=parent.nsmap)
            shell.extend(deepcopy(child) for child in parent if _name(child) == "header")
            etree.SubElement(shell, element.tag, element.attrib).text = "\n"
            start, _, self.end = etree.tostring(shell, encoding="unicode").rpartition("\n")
            doctype = parent.getroottree().docinfo.doctype
            self.start = "\n".join(filter(None, ['<?xml version="1.0" encoding="UTF-8"?>', doctype, start]))

    def _check_entities(self, unit: Any) -> None:
        """Raises ValueError if a unit has an entity whose text may be in a DTD, which is not read."""
        for entity in unit.iter(etree.Entity):
            raise ValueError(
                f"`{self.file}` must use only the entities of XML itself, such as &amp;, but line {entity.sourceline} "
                f"has {entity.text}. Write its text in its place."
            )

    def _no_xml(self, errors: Any, num_units: int) -> ValueError:
        if not errors:
            return ValueError(f"`{self.file}` must be a TMX file, but is empty. Check how it was made or copied.")
        first = errors[0]
        return ValueError(
            f"`{self.file}` must be well-formed XML, but line {first.line}, column {first.column} is not: "
            f"{first.message}. {num_units} units were read until there. Mend it, or export the memory again."
        )


def _check_root(root: Any, file: Path) -> None:
    if _name(root) != "tmx":
        raise ValueError(f"`{file}` must be a TMX file, but its first element is <{_name(root)}> instead of <tmx>.")
    dtd = root.getroottree().docinfo.internalDTD
    names = [] if dtd is None else [entity.name for entity in dtd.entities()]
    if names:
        raise ValueError(
            f"`{file}` must use only the entities of XML itself, such as &amp;, but declares {names[0]!r}, which is "
            "not read, since entities can lead to other files. Take the declaration out, and write its text."
        )


def _name(element: Any) -> str:
    """Returns an element's name without its namespace; nothing for a comment."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _forget(unit: Any) -> None:
    """Frees the room of a unit, and of all before it."""
    unit.clear()
    parent = unit.getparent()
    while unit.getprevious() is not None:
        del parent[0]


def _variants(unit: Any) -> list[Any]:
    return [child for child in unit if _name(child) == "tuv"]


def language_of(variant: Any) -> str:
    """Returns the language of a variant: `xml:lang`, which was `lang` in TMX 1.1."""
    return str(variant.get(_XML_LANG) or variant.get("lang") or "")


def find_variant(unit: Any, language: str) -> Any:
    """Returns the variant of a unit in a language, or None: that of just this name, or else the first with a text."""
    found = [variant for variant in _variants(unit) if is_language(language_of(variant), language)]
    exact = [variant for variant in found if is_language(language, language_of(variant))]
    with_text = (variant for variant in (*exact, *found) if not is_blank(text_of(variant, "keep")))
    return next(with_text, (exact or found or [None])[0])


def text_of(variant: Any, inline_tags: InlineTags) -> str:
    """Returns the text of a variant, on one line; nothing for none.

    Args:
        variant: The variant, or None.
        inline_tags: "drop" leaves out the codes of the original document that stand inside the segment, and "keep"
            writes them as text.
    """
    segments = [] if variant is None else [child for child in variant if _name(child) == "seg"]
    return as_one_line(_inner_text(segments[0], inline_tags == "keep")) if segments else ""


def _inner_text(element: Any, keeps_codes: bool) -> str:
    text = element.text or ""
    for child in element:
        name, rest = _name(child), child.tail or ""
        if name and (keeps_codes or name not in _CODES):
            text += _inner_text(child, keeps_codes)
        elif text[-1:].isspace() and rest[:1].isspace():
            rest = rest[1:]  # what stood between two spaces leaves one
        text += rest
    return text


def read_tmx_pairs(
    file: Path, source_language: str, target_language: str, inline_tags: InlineTags
) -> Iterator[dict[str, str]]:
    """Yields the texts of each unit in two languages; blank ones where it has none.

    Raises:
        ValueError: If the memory cannot be read, or no unit has both languages.
    """
    memory, has_pairs = Memory(file), False
    for unit in memory.units():
        source, target = (
            text_of(find_variant(unit, language), inline_tags) for language in (source_language, target_language)
        )
        has_pairs = has_pairs or not (is_blank(source) or is_blank(target))
        yield {"source": source, "target": target}
    if not has_pairs:
        languages = ", ".join(memory.languages) or "none"
        raise ValueError(
            f"`{file}` must hold units with text in {source_language!r} and {target_language!r}, but holds none; its "
            f"languages are: {languages}. Set `source_language` and `target_language`."
        )


def fill_target(unit: str, language: str, text: str) -> str:
    """Returns a unit, as XML, with a text as its segment in a language; the first one if it has several.

    Args:
        unit: The unit.
        language: The language.
        text: The text.
    """
    element = etree.fromstring(unit, etree.XMLParser(resolve_entities=False, no_network=True))
    namespace = etree.QName(element).namespace
    prefix = f"{{{namespace}}}" if namespace else ""
    variant = find_variant(element, language)
    if variant is None:
        before = _variants(element)
        variant = etree.SubElement(element, f"{prefix}tuv", {_XML_LANG: language})
        if before:  # indented as the one before it
            variant.tail, before[-1].tail = before[-1].tail, element.text
    segment = next((child for child in variant if _name(child) == "seg"), None)
    if segment is None:
        segment = etree.SubElement(variant, f"{prefix}seg")
    tail = segment.tail
    segment.clear()
    segment.text, segment.tail = _NOT_IN_XML.sub("", text), tail
    return as_xml(element)


def as_xml(unit: Any) -> str:
    """Returns a unit as XML, without what stands behind it."""
    return str(etree.tostring(unit, encoding="unicode", with_tail=False))
