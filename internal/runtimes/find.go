package runtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/files"
)

// Folder holds downloaded runtimes, beside the program or in the working directory.
const Folder = ".runtime"

// Find returns the absolute path of a runtime's library. It looks at explicit (--backend-config library-path) and
// at the runtime's environment variable, which must exist if set; then in Folder beside the program, beside the
// program's folder and in the working directory; then in the user's cache; then in the system's library folders.
// The error names the command that fetches it.
func Find(name, explicit string) (string, error) {
	r, err := known(List(), name)
	if err != nil {
		return "", err
	}
	for _, given := range [][2]string{{"library path", explicit}, {r.Env(), os.Getenv(r.Env())}} {
		if given[1] != "" {
			return existing(r, given[0], given[1])
		}
	}
	folders := fetchFolders()
	if dir, err := cacheFolder(); err == nil {
		folders = append(folders, dir)
	}
	for _, dir := range folders {
		if path, ok := r.fetchedIn(dir); ok {
			return filepath.Abs(path)
		}
	}
	system := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")),
		"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib")
	for _, dir := range system {
		for _, so := range r.Sonames {
			if path := filepath.Join(dir, so); files.IsRegular(path) {
				return path, nil
			}
		}
	}
	return "", status.Reasonf(status.RuntimeMissing, "%s is not installed: run 'tutti runtime fetch %s'", r.Title, r.Name)
}

// known returns the runtime with a name.
func known(list []Runtime, name string) (*Runtime, error) {
	i := slices.IndexFunc(list, func(r Runtime) bool { return r.Name == name })
	if i >= 0 {
		return &list[i], nil
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return nil, status.Errorf(status.InvalidArg, "unknown runtime '%s', expected one of %s", name, strings.Join(names, ", "))
}

// existing checks a path from the user. A folder means the library in it.
func existing(r *Runtime, from, path string) (string, error) {
	if found, err := exec.LookPath(path); err == nil && len(r.Sonames) == 0 { // the name of a program is looked up in PATH
		path = found
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if found, ok := r.libraryIn(path); ok {
			path = found
		}
	}
	if !files.IsRegular(path) {
		return "", status.Reasonf(status.RuntimeMissing, "no %s library at '%s', which %s names: correct it, or unset it and run 'tutti runtime fetch %s'",
			r.Title, path, from, r.Name)
	}
	return filepath.Abs(path)
}

// fetchedIn returns the library that Fetch installed under dir.
func (r *Runtime) fetchedIn(dir string) (string, bool) {
	for _, p := range r.releases() {
		if path := filepath.Join(dir, r.folderName(&p), filepath.FromSlash(p.Library)); files.IsRegular(path) {
			return path, true
		}
	}
	return "", false
}

// libraryIn returns the library directly in dir, or installed by Fetch under it.
func (r *Runtime) libraryIn(dir string) (string, bool) {
	var names []string
	for _, p := range r.releases() {
		library := filepath.FromSlash(p.Library)
		names = append(names, library, filepath.Base(library))
	}
	for _, file := range append(names, r.Sonames...) {
		if path := filepath.Join(dir, file); files.IsRegular(path) {
			return path, true
		}
	}
	return r.fetchedIn(dir)
}

// folderName is the release's folder name. For example, onnxruntime-1.22.0.
func (r *Runtime) folderName(p *Release) string { return r.Name + "-" + p.Version }

// Fetched returns the library that Fetch installed in Folder, in the working directory, beside the program's folder
// or beside the program. It reports false if there is none.
func Fetched(name string) (string, bool) {
	r, err := known(List(), name)
	if err != nil {
		return "", false
	}
	for _, dir := range slices.Backward(fetchFolders()) {
		if path, ok := r.fetchedIn(dir); ok {
			path, err = filepath.Abs(path)
			return path, err == nil
		}
	}
	return "", false
}

// fetchFolders are the folders into which users fetch libraries.
func fetchFolders() []string {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		dir := filepath.Dir(exe)
		dirs = append(dirs, filepath.Join(dir, Folder), filepath.Join(filepath.Dir(dir), Folder))
	}
	return append(dirs, Folder)
}

// cacheFolder is the folder shared by all checkouts: tutti in XDG_CACHE_HOME or ~/.cache.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "tutti"), err
}
