"""Indexing a folder against raw FastEmbed on the same texts, in one run.

`python benchmarks/indexing.py KB [--files N] [--category-from-path N] [--batch N]`

Ours is the whole of it: reading, L0, cutting, embedding, storing. Raw FastEmbed is
`TextEmbedding.embed` with its default batches on the same texts in file order, and nothing else.
Then the same folder again, unchanged.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from langchain_lookup_knowledge import FastEmbedModel, FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.models.passage_vectors import embedded_text
from langchain_lookup_knowledge.l1.stores.fingerprints import PASSAGE_TOKENS
from langchain_lookup_knowledge.reading.passages import split_passages


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--files",
        type=int,
        default=150,
        help="take every n-th file, so that about this many are left",
    )
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument(
        "--batch", type=int, default=embeddings.BATCH_SIZE, help="passages embedded at once"
    )
    arguments = parser.parse_args()
    embeddings.BATCH_SIZE = arguments.batch

    folder = Path(tempfile.mkdtemp())
    files = sorted(arguments.folder.rglob("*.md"))
    for path in files[:: max(1, len(files) // arguments.files)]:
        target = folder / path.relative_to(arguments.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

    model = FastEmbedModel()
    model.load()
    start = time.perf_counter()
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    kb = KnowledgeBase.open(folder, embedding=model, fields=fields)
    first = time.perf_counter() - start
    start = time.perf_counter()
    again = KnowledgeBase.open(folder, embedding=model, fields=fields, sync=False)
    report = again.sync()
    second = time.perf_counter() - start

    count = model.count_tokens
    texts = [
        embedded_text(entry, passage, count)
        for entry in kb.entries
        for passage in split_passages(entry, size=PASSAGE_TOKENS, units=model.token_starts)
    ]
    start = time.perf_counter()
    list(model.load().embed(texts))
    raw = time.perf_counter() - start

    print(f"{len(kb.entries)} entries, {len(texts)} passages")
    print(f"ours, everything: {first:.1f} s, {len(texts) / first:.1f} passages a second")
    print(f"raw FastEmbed:    {raw:.1f} s, {len(texts) / raw:.1f} passages a second")
    print(
        f"ratio {raw / first:.2f}; unchanged: {second:.2f} s ({first / second:.0f} times "
        f"less), {report.embedded} embedded"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
