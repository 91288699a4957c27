"""Prints the licences of the Go modules that programs contain, each text once, with the modules that are under it.

    go list -deps -f '...' ./cmd/tutti | licences.py NAME=FILE ...

A line of the standard input has the path, the version and the folder of a module, and the folder of one of its packages, with tabs
between. A module's licences are the files of that kind in the folders from those of its packages up to its own. NAME=FILE is the
licence of a module that has no such file, or of software that is no module. A module without any is an error.
"""

import pathlib
import re
import sys

LICENCE = re.compile(r"(un)?licen[cs]e|copying|notice|copyright|patents", re.IGNORECASE)


def main(lines, others):
    given = {name: pathlib.Path(file) for name, file in (other.split("=", 1) for other in others)}
    found = {}  # the names of what is under a text
    for name, files in sorted(modules(lines).items()):
        path = name.split()[0]
        if not files and path not in given:
            sys.exit(f"licences: the module {name} has no file with its licence: give one as {path}=FILE")
        for file in sorted(files) or [given.pop(path)]:
            found.setdefault(file.read_text(errors="replace").strip(), {})[name] = None
    for name, file in given.items():
        found.setdefault(file.read_text().strip(), {})[name] = None
    print("Tutti's programs contain the software below, under these licences.")
    for text, names in found.items():
        print(f"\n{'=' * 80}\n" + "\n".join(names) + f"\n{'=' * 80}\n\n{text}")


def modules(lines):
    """Returns the licence files of each module, by "PATH VERSION". The modules of this project have no version."""
    of = {}
    for line in lines:
        if not line.strip():
            continue
        path, version, root, package = line.rstrip("\n").split("\t")
        if not version:
            continue
        files, folder, root = of.setdefault(f"{path} {version}", set()), pathlib.Path(package), pathlib.Path(root)
        while root in (folder, *folder.parents):
            files.update(f for f in folder.iterdir() if LICENCE.match(f.name) and f.is_file() and f.suffix not in (".go", ".py"))
            folder = folder.parent
    return of


if __name__ == "__main__":
    main(sys.stdin, sys.argv[1:])
