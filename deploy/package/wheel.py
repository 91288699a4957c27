"""Packs the programs of one platform as a Python wheel: pip install puts tutti on the PATH, and the module tutti starts it.

    wheel.py VERSION ARCH GLIBC FOLDER DIST

FOLDER has bin/ with the programs, LICENSE and THIRD_PARTY_LICENSES. GLIBC is the oldest one that the programs run on, for example
2.28. The wheel is the same for the same files and the same SOURCE_DATE_EPOCH.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def main(version, arch, glibc, folder, dist):
    folder, sources = pathlib.Path(folder), pathlib.Path(__file__).parent
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{MACHINES[arch]}"
    info = f"tutti_server-{version}.dist-info"
    files = {
        "tutti/__init__.py": (sources / "tutti.py").read_bytes(),
        f"{info}/METADATA": metadata(version, (sources / "wheel.md").read_text()),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tutti\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/licenses/LICENSE": (folder / "LICENSE").read_bytes(),
        f"{info}/licenses/THIRD_PARTY_LICENSES": (folder / "THIRD_PARTY_LICENSES").read_bytes(),
    }
    for program in sorted((folder / "bin").iterdir()):
        files[f"tutti_server-{version}.data/scripts/{program.name}"] = program.read_bytes()
    record = [f"{name},sha256={digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(pathlib.Path(dist) / f"tutti_server-{version}-{tag}.whl", "w") as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, content)


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def metadata(version, readme):
    return f"""Metadata-Version: 2.4
Name: tutti-server
Version: {version}
Summary: Server of model ensembles with Triton's repositories and protocol
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD_PARTY_LICENSES
Requires-Python: >=3.9
Provides-Extra: client
Requires-Dist: tritonclient[http]; extra == "client"
Project-URL: Source, https://github.com/tutti-server/tutti
Description-Content-Type: text/markdown

{readme}""".encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
