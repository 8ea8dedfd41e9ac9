"""Packages of the npm registry: fetches a given version of one and takes single files out of it, whose
SHA-256 must be right.

Shared by scripts/get-webgpu and scripts/get-data. The registry is the one that npm is configured for
(npm's default if there is no npm); nothing of a package is run.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request

DEFAULT_REGISTRY = "https://registry.npmjs.org/"


class Failed(Exception):
    pass


def default_folder():
    data = os.environ.get("XDG_DATA_HOME")
    return (pathlib.Path(data) if data else pathlib.Path.home() / ".local/share") / "tensorgrad"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def npm_pack(npm, name, version, folder):
    """Uses npm, which knows proxies, mirrors and tokens. --ignore-scripts: runs nothing of the package."""
    command = [npm, "pack", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1", f"{name}@{version}"]
    environment = {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    found = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(found) != 1:
        raise Failed(f"npm pack {name}@{version}: {'; '.join((done.stderr or done.stdout).splitlines()[:3]) or 'no file'}")
    return found[0]


def download(name, version, folder):
    registry = os.environ.get("npm_config_registry") or os.environ.get("NPM_CONFIG_REGISTRY") or DEFAULT_REGISTRY
    address = f"{registry.rstrip('/')}/{name}/{version}"
    target = folder / "package.tgz"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            tarball = json.load(answer)["dist"]["tarball"]
        with urllib.request.urlopen(tarball, timeout=600) as answer, open(target, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
        raise Failed(f"{address}: {error}") from error
    return target


def extract(archive, member, target):
    """Takes that one file, whatever else the archive holds."""
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(member)
            if file is None:
                raise Failed(f"{member} in the package is not a file")
            with open(target, "wb") as out:
                shutil.copyfileobj(file, out)
    except (KeyError, tarfile.TarError, EOFError) as error:
        raise Failed(f"the package holds no {member}: {error}") from error


def fetch(name, version, folder):
    """The package's archive, somewhere in the folder."""
    npm = shutil.which("npm")
    return npm_pack(npm, name, version, folder) if npm else download(name, version, folder)


def take(archive, package, member, digest, target):
    """That file of the archive, if its hash is right."""
    extract(archive, member, target)
    found = sha256(target)
    if found != digest:
        raise Failed(f"{member} of {package} has SHA-256 {found}, not {digest}: not installed")
