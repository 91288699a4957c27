# For scripts that fetch Python packages; source it.

# pip_folder NAME PINS [OPTION ...] prints a folder of the cache with the packages of a hashed list of requirements, fetched
# for the Python of PYTHON or python3, for PYTHONPATH; options are pip's. A function named finish, when the caller has one,
# adds files to the folder before it is moved to its final path. With LOOK=1 nothing is downloaded. It ends the script with status 3
# if the packages are not available.
pip_folder() {
	local name="$1" pins="$2" python="${PYTHON:-python3}" kind sum target try work
	shift 2
	"$python" -m pip --version >/dev/null 2>&1 || cannot "needs $python with pip (Debian: apt-get install python3-pip)"
	kind="$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
	sum="$(sha256sum "$pins")"
	target="${XDG_CACHE_HOME:-$HOME/.cache}/tutti/$name-$kind-${sum:0:16}"
	if [[ ! -d "$target" ]]; then
		[[ "${LOOK:-}" != 1 ]] || cannot "$target is not there"
		mkdir -p "${target%/*}"
		work="$(mktemp -d "$target.XXXXXX")"
		trap "rm -rf '$work'" EXIT
		for try in 1 2 3 failed; do
			[[ $try != failed ]] || cannot "the packages cannot be fetched; is there a network, and a Python that the head of $pins names?"
			PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
				--only-binary=:all: --require-hashes --upgrade --target "$work" -r "$pins" "$@" >&2 && break
			echo "${0##*/}: pip failed (try $try of 3)" >&2
			sleep $((try * 2))
		done
		if declare -F finish >/dev/null; then finish "$work"; fi
		chmod 755 "$work"
		mv -T "$work" "$target" 2>/dev/null || [[ -d "$target" ]]
	fi
	echo "$target"
}

# cannot ends the script because a download is not possible here.
cannot() {
	echo "${0##*/}: $1" >&2
	exit 3
}
