"""Reads pairs of texts: from two text files, from a file that holds both sides, or from a dataset."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.text_lines import BLANK_PATTERN

from .archives import read_sides
from .languages import check_languages
from .lines import LONGEST_MARK, check_file, check_unpacked, content_digest, read_lines
from .tables import DELIMITED, JSON, MULTILINGUAL, plain_name, read_delimited_pairs, read_json_pairs
from .tmx import InlineTags, read_tmx_pairs


if TYPE_CHECKING:
    from datasets import Dataset, Features, IterableDataset


logger = logging.getLogger(__name__)

# Part of the key of cached pairs. Raise it when a change of this file reads other pairs from the same files.
READER_VERSION = 1


def load_parallel(
    source: PathLike | None = None,
    target: PathLike | None = None,
    *,
    file: PathLike | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    split: str = "train",
    source_column: str = "source",
    target_column: str = "target",
    source_language: str | None = None,
    target_language: str | None = None,
    inline_tags: InlineTags = "drop",
    streaming: bool = False,
) -> "Dataset | IterableDataset":
    """Loads pairs of texts from two text files, one file with both sides, or a dataset.

    Pairs with a blank side are dropped, and their number is logged. Texts are not changed, apart from the repairs of
    `read_lines` in text, TSV, CSV and JSON files. The datasets library caches the pairs of a file. The file is read
    again, and its repairs are logged again, when its path or its content differs.

    With `streaming`, pairs are read each time they are iterated over, and nothing is cached. Repairs are logged, and
    errors in a file are raised, when that part of the file is read. The number of blank pairs is logged from time to
    time, as `filter_pairs` does.

    Args:
        source: A text file, plain or gzipped, with one text a line.
        target: A text file with the counterpart of each line of `source` on the same line.
        file: A TSV, CSV, JSON or TMX file (each also gzipped), a Parquet file, or a zip archive with a text file for
            each language, as OPUS has them in the format of Moses. Quotes in a TSV file have no special meaning, and
            a TSV file of two columns needs no header. A JSON file is JSON Lines or an array of objects.
        dataset_name: A folder that `Dataset.save_to_disk` wrote, or a name for `datasets.load_dataset`.
        dataset_config_name: The configuration of that dataset, such as "de-en", if it has several.
        split: The split of that dataset.
        source_column: The column of a table or dataset with the source texts; a dot leads into a nested column, as in
            "translation.en". In a TSV or CSV file without a header it is a number, from "1".
        target_column: The column with the target texts, in the same form.
        source_language: The language of the source in a TMX file or zip archive: "en" stands for en, en-GB and EN-US.
        target_language: The language of the target there.
        inline_tags: What becomes of the codes that stand inside segments of a TMX file, such as bold type: "drop"
            leaves them out, "keep" reads them as text.
        streaming: Whether to read the pairs only while they are used, for corpora too large for the disk.

    Returns:
        A dataset with the text columns "source" and "target"; with `streaming` an `IterableDataset`.

    Raises:
        OSError: If a file does not exist or cannot be read.
        ValueError: If the arguments name no input or several, the two files differ in their number of lines, a row has
            too few or too many cells, a column or language is missing or holds no text, or no pair is left.
    """
    kinds = [source is not None or target is not None, file is not None, dataset_name is not None]
    if sum(kinds) != 1 or (source is None) != (target is None):
        named = {"source": source, "target": target, "file": file, "dataset_name": dataset_name}
        given = [f"`{argument}`" for argument, value in named.items() if value is not None]
        raise ValueError(
            "The pairs must come from either `source` and `target`, or `file`, or `dataset_name`, but given are "
            f"{' and '.join(given) or 'none of them'} instead."
        )
    if source_column == target_column:
        raise ValueError(f"`target_column` must differ from `source_column`, but both are {source_column!r}.")
    if source is not None and target is not None:
        name = f"{source} and {target}"
        pairs = _pairs_of_files(streaming, _read_text_pairs, [check_file(source), check_file(target)])
    elif file is not None:
        name = str(file)
        columns, languages = (source_column, target_column), (source_language, target_language)
        pairs = _load_file(check_file(file), columns, languages, inline_tags, streaming)
    else:
        name = str(dataset_name)
        pairs = _load_dataset(name, dataset_config_name, split, source_column, target_column, streaming)
    return _drop_blank_pairs(pairs, name)


PairReader = Callable[..., Iterator[dict[str, str]]]


def _pairs_of_files(
    streaming: bool, read_pairs: PairReader, files: list[Path], *columns: str
) -> "Dataset | IterableDataset":
    """Returns the pairs that `read_pairs(*files, *columns)` yields: a stream, or a dataset that is cached on disk."""
    from datasets import Dataset, IterableDataset
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    read_pairs_of_files = partial(_read_at_least_one_pair, read_pairs, files, columns)
    if streaming:
        return IterableDataset.from_generator(read_pairs_of_files, features=_text_features())
    states = [(str(file.resolve()), content_digest(file)) for file in files]
    try:
        return Dataset.from_generator(
            read_pairs_of_files,
            features=_text_features(),
            fingerprint=Hasher.hash([READER_VERSION, read_pairs.__name__, states, columns]),
        )
    except DatasetGenerationError as error:
        # The library wraps the generator's error, which names the file and the line.
        raise (error.__cause__ or error) from None


def _read_at_least_one_pair(
    read_pairs: PairReader, files: Sequence[Path], columns: Sequence[str]
) -> Iterator[dict[str, str]]:
    pairs = read_pairs(*files, *columns)
    first = next(pairs, None)
    if first is None:
        raise ValueError(f"`{files[0]}` must hold at least one pair, but holds only a header.")
    yield first
    yield from pairs


def _text_features() -> "Features":
    from datasets import Features, Value

    return Features({"source": Value("string"), "target": Value("string")})


def _read_text_pairs(source: Path, target: Path) -> Iterator[dict[str, str]]:
    yield from _join_sides(read_lines(source), read_lines(target), source, target)


def _read_zipped_pairs(file: Path, *languages: str) -> Iterator[dict[str, str]]:
    source, target = languages
    sources, targets = read_sides(file, source, target)
    yield from _join_sides(sources, targets, f"{source} of {file}", f"{target} of {file}")


def _join_sides(
    sources: Iterator[str], targets: Iterator[str], source: object, target: object
) -> Iterator[dict[str, str]]:
    """Yields the lines of two files as pairs."""
    for num_pairs, (source_text, target_text) in enumerate(zip_longest(sources, targets)):
        if source_text is None or target_text is None:
            longer = num_pairs + 1 + sum(1 for _ in chain(sources, targets))
            num_sources, num_targets = (num_pairs, longer) if source_text is None else (longer, num_pairs)
            raise ValueError(
                f"`source` and `target` must have the same number of lines, but {source} has {num_sources} and "
                f"{target} has {num_targets} instead. Line n of one must be the counterpart of line n of the other."
            )
        yield {"source": source_text, "target": target_text}


def _load_file(
    file: Path, columns: tuple[str, str], languages: tuple[str | None, str | None], inline_tags: str, streaming: bool
) -> "Dataset | IterableDataset":
    """Returns the pairs of a file with both sides, which the ending of its name says how to read."""
    name = plain_name(file)
    if name.endswith(DELIMITED):
        return _pairs_of_files(streaming, read_delimited_pairs, [file], *columns)
    if name.endswith(JSON):
        return _pairs_of_files(streaming, read_json_pairs, [file], *columns)
    if name.endswith(MULTILINGUAL):
        source_language, target_language = check_languages(*languages, file)
        if name.endswith(".zip"):
            return _pairs_of_files(streaming, _read_zipped_pairs, [file], source_language, target_language)
        return _pairs_of_files(streaming, read_tmx_pairs, [file], source_language, target_language, inline_tags)
    if name.endswith(".parquet"):
        return _load_parquet(file, *columns, streaming)
    with file.open("rb") as stream:
        check_unpacked(stream.read(LONGEST_MARK), str(file))
    raise ValueError(
        f"`file` must end in .tsv, .csv, .jsonl, .json or .tmx (each also with .gz), .zip or .parquet, but is {file} "
        "instead. Give two text files as `source` and `target`."
    )


def _load_parquet(file: Path, source_column: str, target_column: str, streaming: bool) -> "Dataset | IterableDataset":
    import datasets
    from datasets.exceptions import DatasetGenerationError

    try:
        # The library's own key of the cached pairs has no content; the name becomes a part of it.
        name = "default" if streaming else content_digest(file)
        dataset = datasets.load_dataset("parquet", name, data_files=str(file), split="train", streaming=streaming)
    except (DatasetGenerationError, ValueError) as error:
        cause = error.__cause__ or error
        raise ValueError(f"`{file}` must be a Parquet file, but cannot be read as one: {cause}") from None
    return _select_columns(dataset, source_column, target_column, str(file))


def _load_dataset(
    name: str, config_name: str | None, split: str, source_column: str, target_column: str, streaming: bool
) -> "Dataset | IterableDataset":
    import datasets

    if not any((Path(name) / state).exists() for state in ("state.json", "dataset_dict.json")):
        dataset = datasets.load_dataset(name, config_name, split=split, streaming=streaming)
        return _select_columns(dataset, source_column, target_column, name)
    saved = datasets.load_from_disk(name)
    # A single dataset answers to "train" whichever split it was saved from.
    splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved, str(saved.split or "train"): saved}
    if split not in splits:
        raise ValueError(f"`split` must be one of those of `{name}` ({', '.join(splits)}), but is {split!r} instead.")
    pairs = _select_columns(splits[split], source_column, target_column, name)
    return pairs.to_iterable_dataset() if streaming else pairs


def _select_columns(
    dataset: "Dataset | IterableDataset", source_column: str, target_column: str, name: str
) -> "Dataset | IterableDataset":
    """Returns the two columns, which may be nested, as "source" and "target"."""
    from datasets import Features, IterableDataset, Value

    from .filtering import STREAM_BATCH_SIZE

    features = dataset.features
    if features is None:  # a stream of a format without types
        import pyarrow as pa

        features = Features.from_arrow_schema(pa.Table.from_pylist(list(dataset.take(100))).schema)
    flat = features.flatten()
    for argument, column in (("source_column", source_column), ("target_column", target_column)):
        if column not in flat:
            raise ValueError(
                f"`{argument}` must be a column of `{name}` ({', '.join(flat)}), but is {column!r} instead."
            )
        if flat[column] not in (Value("string"), Value("large_string")):
            raise ValueError(
                f"`{argument}` must be a column of texts, but {column!r} of `{name}` holds {flat[column]} instead. "
                "Name another column or save this one as strings."
            )
    if isinstance(dataset, IterableDataset):
        columns = {"source": source_column, "target": target_column}
        return dataset.map(
            partial(_pick_texts, columns=columns, name=name),
            batched=True,
            batch_size=STREAM_BATCH_SIZE,
            features=_text_features(),
            remove_columns=list(features),
        )
    pairs = dataset.flatten().select_columns([source_column, target_column])
    pairs = pairs.rename_columns({source_column: "source", target_column: "target"})
    return pairs if pairs.features == _text_features() else pairs.cast(_text_features())


def _pick_texts(batch: dict[str, list[Any]], columns: dict[str, str], name: str) -> dict[str, list[str | None]]:
    """Returns the texts at dotted paths in a batch of a stream."""
    texts = {}
    for side, column in columns.items():
        outer, *path = [column] if column in batch else column.split(".")
        values = batch[outer]
        for key in path:
            values = [value and value[key] for value in values]
        for value in values:
            if value is not None and not isinstance(value, str):
                raise ValueError(f"The column {column!r} of `{name}` must hold texts, but holds {value!r} instead.")
        texts[side] = values
    return texts


def _drop_blank_pairs(pairs: "Dataset | IterableDataset", name: str) -> "Dataset | IterableDataset":
    """Drops the pairs that have a side that is null or blank."""
    from .filtering import Tally, drop_pairs

    tally = Tally(
        num_reasons=3,
        report=partial(_report_blank_pairs, name),
        nothing_left=f"`{name}` must hold at least one pair with text on both sides, but holds none.",
    )
    return drop_pairs(pairs, _judge_blank, tally)


def _judge_blank(table: Any) -> Any:
    """Returns for each pair 0 if both sides have text, 1 for a blank source, 2 for a blank target, and 3 for both."""
    import pyarrow.compute as pc

    source, target = (
        pc.match_substring_regex(pc.fill_null(table[side], ""), BLANK_PATTERN).to_numpy().astype(int)
        for side in ("source", "target")
    )
    return source + 2 * target


def _report_blank_pairs(name: str, counts: Any) -> None:
    logger.warning(
        "%s: dropped %d of %d pairs, since a side is blank (%d sources, %d targets).",
        *(name, counts[1:].sum(), counts.sum(), counts[1] + counts[3], counts[2] + counts[3]),
    )
