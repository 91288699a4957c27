package runtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Folder is the folder beside the program, or in the working directory, that holds fetched runtimes.
const Folder = ".runtime"

// Find returns the path of a runtime's library, absolute. It looks at explicit (a --backend-config library-path), then
// the runtime's environment variable, each of which must exist when it is set; then in Folder beside the program, beside
// the program's folder and in the working directory; then in the user's cache; then where the system keeps libraries. The
// error says which one command gets it.
func Find(name, explicit string) (string, error) {
	r, err := known(List(), name)
	if err != nil {
		return "", err
	}
	for _, given := range [][2]string{{"library path", explicit}, {r.Env(), os.Getenv(r.Env())}} {
		if given[1] == "" {
			continue
		}
		return existing(r, given[0], given[1])
	}
	for _, dir := range folders() {
		if path, ok := r.in(dir); ok {
			return filepath.Abs(path)
		}
	}
	for _, dir := range systemFolders() {
		for _, so := range r.Sonames {
			if path := filepath.Join(dir, so); isFile(path) {
				return path, nil
			}
		}
	}
	return "", status.Errorf(status.Unavailable, "%s is not installed: run 'tutti runtime fetch %s'", r.Title, r.Name)
}

// known returns the named runtime of a list.
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

// existing checks a path that the user gave; a folder stands for the library in it.
func existing(r *Runtime, from, path string) (string, error) {
	if found, err := exec.LookPath(path); err == nil && len(r.Sonames) == 0 { // a program's name stands for its path
		path = found
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if found, ok := r.inside(path); ok {
			path = found
		}
	}
	if !isFile(path) {
		return "", status.Errorf(status.Unavailable, "no %s library at '%s', which %s names: correct it, or unset it and run 'tutti runtime fetch %s'",
			r.Title, path, from, r.Name)
	}
	return filepath.Abs(path)
}

// in returns the library that Fetch placed under dir.
func (r *Runtime) in(dir string) (string, bool) {
	for _, p := range r.releases() {
		if path := filepath.Join(dir, r.place(&p), filepath.FromSlash(p.Library)); isFile(path) {
			return path, true
		}
	}
	return "", false
}

// inside returns the library that lies in dir itself, or that Fetch placed under it.
func (r *Runtime) inside(dir string) (string, bool) {
	for _, p := range r.releases() {
		for _, file := range []string{filepath.FromSlash(p.Library), filepath.Base(filepath.FromSlash(p.Library))} {
			if path := filepath.Join(dir, file); isFile(path) {
				return path, true
			}
		}
	}
	for _, so := range r.Sonames {
		if path := filepath.Join(dir, so); isFile(path) {
			return path, true
		}
	}
	return r.in(dir)
}

// place is the release's folder below a runtime folder.
func (r *Runtime) place(p *Release) string { return r.Name + "-" + p.Version }

// Placed returns the library that Fetch placed in Folder in the working directory, beside the program's folder or beside the
// program, and whether there is one.
func Placed(name string) (string, bool) {
	r, err := known(List(), name)
	if err != nil {
		return "", false
	}
	for _, dir := range slices.Backward(placed()) {
		if path, ok := r.in(dir); ok {
			path, err = filepath.Abs(path)
			return path, err == nil
		}
	}
	return "", false
}

// placed are the folders that users have libraries placed in.
func placed() []string {
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

func folders() []string {
	dirs := placed()
	if dir, err := cacheFolder(); err == nil {
		dirs = append(dirs, dir)
	}
	return dirs
}

func systemFolders() []string {
	return append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")),
		"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib")
}

// cacheFolder is where libraries are kept for other checkouts: XDG_CACHE_HOME or ~/.cache, then tutti.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "tutti"), nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
