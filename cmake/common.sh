# Shared by ./run and ./check: installs what packages.txt lists, configures and builds, all quietly.
# Expects $root; gives $build.
build=$root/build

say() { printf '%s\n' "$*" >&2; }

# Installs the packages that are missing; silent where none is.
install_packages() {
  local wanted missing sudo=
  wanted=$(sed 's/#.*//' "$root/packages.txt")
  command -v dpkg-query >/dev/null || return 0   # not Debian: what is missing shows when CMake looks for it
  # shellcheck disable=SC2086
  missing=$(comm -23 <(printf '%s\n' $wanted | sort) \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' | sort))
  [ -n "$missing" ] || return 0
  [ "$(id -u)" = 0 ] || sudo=sudo
  say "installing" $missing
  # shellcheck disable=SC2086
  if ! { $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing; } \
    >"$build.install.log" 2>&1; then
    tail -n 15 "$build.install.log" >&2
    say "cannot install:" $missing
    exit 1
  fi
  rm -f "$build.install.log"
}

# Runs a command, showing its output only if it fails.
quietly() {
  local log=$build/last.log
  mkdir -p "$build"
  "$@" >"$log" 2>&1 </dev/null && return 0
  { grep -E 'error:|CMake Error|FAILED' "$log" | head -n 10; tail -n 12 "$log"; } | cut -c1-300 >&2 || true
  say "failed: $*"
  exit 1
}

# build_targets TARGET...: configures at the first time, then builds.
build_targets() {
  [ -f "$build/build.ninja" ] || quietly cmake -S "$root" -B "$build" -G Ninja
  quietly cmake --build "$build" --target "$@"
}
