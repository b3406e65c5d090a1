"""Checks a wheel: one top-level name, and every file that the repository has for the package.

python .ci/check_wheel.py dist/pipesim-0.1.0-py3-none-any.whl
"""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

# The folders that pipesim's links lead to.
LINKED = ("schedules", "backends", "viz")


def expected() -> set[str]:
    """The package's files that git has, under the names they are installed by."""
    folders = ["pipesim", *LINKED]
    listed = subprocess.run(["git", "ls-files", "-z", *folders], capture_output=True, text=True, check=True)
    names = {name for name in listed.stdout.split("\0") if name and not Path(name).is_symlink()}
    return {name if name.startswith("pipesim/") else f"pipesim/{name}" for name in names}


def main(wheel: str) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    installed = {name for name in names if ".dist-info/" not in name}
    wrong = [f"top-level name {top}" for top in sorted({name.split("/")[0] for name in installed} - {"pipesim"})]
    wrong += [
        f"missing {name}: give its folder an __init__.py, or its ending a line in package-data"
        for name in sorted(expected() - installed)
    ]
    wrong += [f"not in git: {name}" for name in sorted(installed - expected())]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        wrong.append("no licence")
    if wrong:
        sys.exit("\n".join([f"{wheel}:", *wrong]))
    print(f"{Path(wheel).name}: {len(installed)} files, one top-level name")


if __name__ == "__main__":
    main(*sys.argv[1:])
