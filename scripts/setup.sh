# shellcheck shell=sh
# What quickstart.sh and test.sh have in common: finding or installing a Rust toolchain and a WebGPU adapter. Sourced,
# never run. Whatever is already there is used; what is missing comes from the system's package manager, as root only
# for that command, and without asking anything.

# Keep equal to rust-version in Cargo.toml.
RUST_NEEDED=1.95

export HOME="${HOME:-/root}"

# 'script' is the name that the sourcing script goes by.
say() { printf '%s: %s\n' "${script:-setup}" "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Seconds between two tries while another process holds the package manager's lock (Ubuntu's unattended upgrades do,
# after every start), and the most tries: ten minutes.
lock_pause=${lock_pause:-5}
lock_tries=120

# Runs a command of the package manager; waits where another process holds its lock.
patiently() {
    told=$(mktemp)
    tries=0
    while :; do
        status=0
        env LC_ALL=C "$@" 2>"$told" || status=$?
        if [ "$status" -eq 0 ] || [ "$tries" -ge "$lock_tries" ] ||
            ! grep -Eqi 'could not get lock|unable to (lock|acquire)|is locked by' "$told"; then
            break
        fi
        [ "$tries" -gt 0 ] ||
            say "another process holds the package manager's lock: waiting for it, ten minutes at most"
        tries=$((tries + 1))
        sleep "$lock_pause"
    done
    cat "$told" >&2
    rm -f "$told"
    return "$status"
}

# Runs a command of the package manager as root; fails where that cannot be.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        patiently "$@"
    elif have sudo; then
        say "needs root, through sudo: $*"
        patiently sudo "$@"
    else
        say "needs root, and there is no sudo; as root, run: $*"
        return 1
    fi
}

# The package manager's name; empty where there is none that we know.
package_manager() {
    for manager in apt-get dnf pacman zypper apk; do
        if have "$manager"; then
            echo "$manager"
            return
        fi
    done
}

# Installs packages by their names in this system's manager. Fails where it cannot.
install_packages() {
    say "installing $*"
    case $(package_manager) in
        apt-get)
            if [ -z "${apt_is_fresh:-}" ]; then
                # One repository that cannot be reached need not matter: the installation decides.
                as_root apt-get update -qq || say "could not refresh all package lists"
                apt_is_fresh=yes
            fi
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "$@" >/dev/null
            ;;
        dnf) as_root dnf install -y -q "$@" >&2 ;;
        # A full upgrade: Arch does not support installing against old package lists.
        pacman) as_root pacman -Syu --noconfirm --needed "$@" >&2 ;;
        zypper) as_root zypper --non-interactive install --no-recommends "$@" >&2 ;;
        apk) as_root apk add --quiet "$@" >&2 ;;
        *) return 1 ;;
    esac
}

# Whether version $1 (major.minor…) is at least RUST_NEEDED.
is_new_enough() {
    major=${1%%.*}
    rest=${1#*.}
    minor=${rest%%.*}
    case $major$minor in '' | *[!0-9]*) return 1 ;; esac
    [ "$major" -gt "${RUST_NEEDED%%.*}" ] ||
        { [ "$major" -eq "${RUST_NEEDED%%.*}" ] && [ "$minor" -ge "${RUST_NEEDED#*.}" ]; }
}

# Version of the rustc that cargo would run here; empty without one.
rust_version() {
    have cargo && rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'
}

# Version of Rust that the package manager would install; empty where it has none or we cannot ask.
packaged_rust_version() {
    case $(package_manager) in
        apt-get) apt-cache policy rustc 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p' ;;
        dnf) dnf -q info rust 2>/dev/null | sed -n 's/^Version *: *\([0-9.]*\).*/\1/p' | tail -n 1 ;;
        pacman) pacman -Si rust 2>/dev/null | sed -n 's/^Version *: *\([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p' ;;
        zypper) zypper --non-interactive info rust 2>/dev/null | sed -n 's/^Version *: *\([0-9.]*\).*/\1/p' ;;
        apk) apk policy rust 2>/dev/null | sed -n 's/^  \([0-9][0-9.]*\).*/\1/p' | head -n 1 ;;
    esac
}

# A C linker: rustc calls it for every binary.
ensure_linker() {
    have cc && return
    if [ "$(uname -s)" = Darwin ]; then
        die "no C compiler; run 'xcode-select --install' and start again"
    fi
    say "no C linker (cc), which Rust needs"
    case $(package_manager) in
        apt-get) install_packages gcc libc6-dev ;;
        apk) install_packages gcc musl-dev ;;
        *) install_packages gcc ;;
    esac || die "could not install a C compiler; install gcc or clang and start again"
}

# cargo and rustc, RUST_NEEDED or newer, in PATH.
ensure_rust() {
    ensure_linker
    cargo_bin=${CARGO_HOME:-$HOME/.cargo}/bin
    if [ -d "$cargo_bin" ]; then
        PATH=$cargo_bin:$PATH
    fi
    export PATH
    found=$(rust_version) || found=
    if ! is_new_enough "$found"; then
        install_rust
        found=$(rust_version) || found=
        is_new_enough "$found" ||
            die "Rust $RUST_NEEDED or newer is needed, found '${found:-none}': see https://rustup.rs"
    fi
    say "using Rust $found"
    # musl targets link statically by default, and a static program cannot load a Vulkan driver.
    if rustc -vV | grep -q '^host: .*-musl'; then
        export RUSTFLAGS="-C target-feature=-crt-static ${RUSTFLAGS:-}"
    fi
}

install_rust() {
    say "Rust $RUST_NEEDED or newer is needed, found '${found:-none}'"
    if have rustup; then
        say "installing the stable toolchain with rustup; your default toolchain stays as it is"
        rustup toolchain install stable --profile minimal || die "rustup could not install the stable toolchain"
        export RUSTUP_TOOLCHAIN=stable
        return
    fi
    packaged=$(packaged_rust_version)
    if is_new_enough "$packaged"; then
        case $(package_manager) in
            apt-get) install_packages rustc cargo rustfmt rust-clippy ;;
            dnf) install_packages rust cargo rustfmt clippy ;;
            apk) install_packages rust cargo rustfmt rust-clippy ;;
            *) install_packages rust ;;
        esac && return
    fi
    say "installing Rust with its official installer (https://rustup.rs) into ${CARGO_HOME:-$HOME/.cargo}"
    if ! have curl; then
        install_packages curl ca-certificates ||
            die "could not install curl; install Rust from https://rustup.rs yourself"
    fi
    installer=$(mktemp)
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o "$installer" ||
        die "could not download the Rust installer; install Rust from https://rustup.rs yourself"
    sh "$installer" -y -q --profile minimal --default-toolchain stable --no-modify-path ||
        die "the Rust installer failed"
    rm -f "$installer"
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    export PATH
}

# A Python with onnx and onnxruntime: a virtual environment at $1, unless EVERYGPU_PYTHON names one that has them. Fails
# where there can be none.
ensure_onnx() {
    onnx_python=${EVERYGPU_PYTHON:-$1/bin/python}
    if "$onnx_python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
        return
    fi
    if ! have python3; then
        install_packages python3 || return 1
    fi
    # Debian has Python without this part of its library.
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null && [ "$(package_manager)" = apt-get ]; then
        install_packages python3-venv || return 1
    fi
    say "installing onnx and onnxruntime from PyPI into $1"
    python3 -m venv "$1" >&2 &&
        "$1/bin/python" -m pip install -q --disable-pip-version-check --retries 1 numpy onnx onnxruntime >&2
}

# Prints the Vulkan driver manifests that the loader would read, one a line.
vulkan_drivers() {
    if [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ]; then
        printf '%s\n' "${VK_DRIVER_FILES:-$VK_ICD_FILENAMES}" | tr : '\n'
        return
    fi
    for folder in /usr/share /usr/local/share /etc "${XDG_DATA_HOME:-$HOME/.local/share}"; do
        for manifest in "$folder"/vulkan/icd.d/*.json; do
            if [ -e "$manifest" ]; then
                echo "$manifest"
            fi
        done
    done
}

# Whether the Vulkan loader is installed. A card's driver can be there without it (containers often mount just that).
have_vulkan_loader() {
    if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1'; then
        return 0
    fi
    # musl has no ldconfig cache
    for library in /lib/libvulkan.so.1 /usr/lib/libvulkan.so.1 /usr/local/lib/libvulkan.so.1; do
        if [ -e "$library" ]; then
            return 0
        fi
    done
    return 1
}

# Mesa's software Vulkan driver (lavapipe) and the Vulkan loader.
install_lavapipe() {
    case $(package_manager) in
        apt-get) install_packages mesa-vulkan-drivers libvulkan1 ;;
        dnf) install_packages mesa-vulkan-drivers vulkan-loader ;;
        pacman) install_packages vulkan-swrast vulkan-icd-loader ;;
        zypper) install_packages libvulkan_lvp libvulkan1 ;;
        apk) install_packages mesa-vulkan-swrast vulkan-loader ;;
        *) return 1 ;;
    esac
}

install_vulkan_loader() {
    case $(package_manager) in
        apt-get | zypper) install_packages libvulkan1 ;;
        pacman) install_packages vulkan-icd-loader ;;
        dnf | apk) install_packages vulkan-loader ;;
        *) return 1 ;;
    esac
}

# At least one WebGPU adapter. macOS has Metal; elsewhere a Vulkan driver and its loader are needed.
ensure_adapter() {
    [ "$(uname -s)" = Linux ] || return 0
    # Mesa wants a private folder of the user's, which a headless machine may lack.
    export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
    if [ -z "$(vulkan_drivers)" ]; then
        say "no Vulkan driver on this machine: installing Mesa's, which also computes on the CPU"
        install_lavapipe || die "could not install Mesa's Vulkan drivers; install them or your card's and start again"
    fi
    if ! have_vulkan_loader; then
        say "there is a Vulkan driver, but no loader (libvulkan.so.1)"
        install_vulkan_loader || die "could not install the Vulkan loader (libvulkan.so.1); install it and start again"
    fi
}
