"""Hooks of MkDocs: README.md is the first page, and links to files outside of docs/ lead to the repository."""

import re

from mkdocs.structure.files import File

LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")
COMMENT = re.compile(r"^ *<!-- .* -->\n", re.MULTILINE)


def on_files(files, config):
    with open("README.md", encoding="utf-8") as file:
        text = file.read()

    def inside(match):
        target = match[2].removeprefix("docs/")
        if target == match[2]:
            target = "../" + target
        elif target == "decisions":
            target = "../docs/decisions"
        return match[1] + target + match[3]

    files.append(File.generated(config, "index.md", content=LINK.sub(inside, text)))
    return files


def on_page_markdown(markdown, page, config, files):
    up = "../" * page.file.src_uri.count("/") + "../"

    def outside(match):
        target = match[2]
        if target == "decisions":  # a folder, which the repository lists
            target = config["repo_url"] + "/tree/main/docs/decisions"
        elif target.startswith(up):
            target = config["repo_url"] + "/blob/main/" + target.removeprefix(up)
        return match[1] + target + match[3]

    return COMMENT.sub("", LINK.sub(outside, markdown))
