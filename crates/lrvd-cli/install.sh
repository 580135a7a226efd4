#!/bin/sh
# Installs the program `lrvd` of a release: downloads the archive of this machine and its checksum, compares, and copies.
#
#     curl -fsSL https://github.com/lrvd/lrvd/releases/latest/download/install.sh | sh
#
# LRVD_VERSION       a release, such as 0.1.0 [default: the latest]
# LRVD_INSTALL_DIR   the folder of the program [default: ~/.local/bin]
# LRVD_DOWNLOAD_URL  the folder of the archives, for mirrors [default: the release at github.com]

set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

target() {
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64") echo x86_64-unknown-linux-gnu ;;
        "Linux aarch64" | "Linux arm64") echo aarch64-unknown-linux-gnu ;;
        "Darwin x86_64") echo x86_64-apple-darwin ;;
        "Darwin arm64") echo aarch64-apple-darwin ;;
        *) fail "no archive for $(uname -s) on $(uname -m); with Rust: cargo install --locked lrvd-cli" ;;
    esac
}

download() { # URL FILE
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --retry 3 --output "$2" "$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$1"
    else
        fail "curl or wget is needed"
    fi || fail "cannot download $1"
}

sha256() { # FILE
    if command -v sha256sum >/dev/null; then
        sha256sum "$1"
    elif command -v shasum >/dev/null; then
        shasum -a 256 "$1"
    else
        fail "sha256sum or shasum is needed"
    fi | cut -d ' ' -f 1
}

# A function, so that a part of the script does nothing.
main() {
    releases=https://github.com/lrvd/lrvd/releases
    if [ -n "${LRVD_VERSION:-}" ]; then
        url=$releases/download/v${LRVD_VERSION#v}
    else
        url=$releases/latest/download
    fi
    url=${LRVD_DOWNLOAD_URL:-$url}
    folder=${LRVD_INSTALL_DIR:-$HOME/.local/bin}
    name=lrvd-$(target)

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    download "$url/$name.tar.gz" "$work/$name.tar.gz"
    download "$url/$name.tar.gz.sha256" "$work/sha256"
    expected=$(cut -d ' ' -f 1 "$work/sha256")
    found=$(sha256 "$work/$name.tar.gz")
    [ "$found" = "$expected" ] ||
        fail "$name.tar.gz has the SHA-256 $found, its checksum file says $expected: nothing is installed"
    tar -xzf "$work/$name.tar.gz" -C "$work"
    # An older C library is noticed here.
    version=$("$work/$name/lrvd" --version) ||
        fail "the program does not start on this system; with Rust: cargo install --locked lrvd-cli"

    mkdir -p "$folder"
    # Another name first: a running program cannot be overwritten, but replaced.
    cp "$work/$name/lrvd" "$folder/.lrvd.new"
    mv -f "$folder/.lrvd.new" "$folder/lrvd"
    echo "$version: $folder/lrvd"
    case ":$PATH:" in
        *":$folder:"*) ;;
        *) echo "$folder is not in PATH: export PATH=\"$folder:\$PATH\"" ;;
    esac
}

main
