"""Hooks of MkDocs: pages from the root of the repository, and links that lead out of `docs/`."""

import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""Pages that stay in the root, where GitHub looks for them, and are part of the site."""
_LINK = re.compile(
    r"^ *```.*?^ *```|`[^`]*`|(!?)\[([^\]]*)\]\(((?:\.\./)*)([^)\s]+)\)", re.DOTALL | re.MULTILINE
)
"""A link, with its parts; or code, which has none."""


def repository_url() -> str | None:
    """Return the address of the repository; `pyproject.toml` is the one place that names it."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    return urls.get("Repository")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to where the site has the page; a file that it does not have is only named."""
    here = Path(page.file.src_uri).parent
    in_root = page.file.src_uri in ROOT_PAGES

    def led(link: re.Match[str]) -> str:
        image, text, up, target = link.groups()
        if target is None:
            return link[0]
        path = target.partition("#")[0]
        if ":" in path or not path:
            return link[0]
        place = (ROOT / ("" if in_root else "docs") / here / up / path).resolve()
        name = place.relative_to(ROOT).as_posix()
        if name in ROOT_PAGES or name.startswith("docs/"):
            name = name.removeprefix("docs/")
            anchor = target.removeprefix(path)
            return f"{image}[{text}]({'../' * len(here.parts)}{name}{anchor})"
        address = repository_url()
        return f"[{text}]({address}/blob/main/{name})" if address else text

    return _LINK.sub(led, markdown)
