package runtimes

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
)

// Runtime is a native library that a backend opens, with the files it needs beside it.
type Runtime struct {
	// Name is what users type: tutti runtime fetch NAME. It is the backend's name.
	Name string
	// Title is what messages call it.
	Title string
	// Variable is the environment variable that names its path, empty for TUTTI_NAME_LIB.
	Variable string
	// Setting is the backend's setting that names its path, empty for library-path.
	Setting string
	// Sonames are the file names under which a system installs it, best first; none for a program.
	Sonames []string
	// Releases are the pinned ones, best first.
	Releases []Release
}

// Release is one pinned build of a runtime.
type Release struct {
	Version string
	// OS and Arch are Go's names of the system that the build is for.
	OS, Arch string
	// Python is the version of the interpreter that the release makes an environment for, as in 3.11; empty for a library.
	Python string
	// Archives are what is fetched; their members together are the release.
	Archives []Archive
	// Library is the file that the backend opens or starts, below the release's folder.
	Library string

	base interpreter // what the environment is made on; set for a release that is fetched
}

// Archive is one pinned package.
type Archive struct {
	// Client is the package client that fetches it: pip or npm.
	Client string
	// Package is the client's name of it with its version.
	Package string
	// Platform is pip's platform tag, empty for npm.
	Platform string
	// Python is the version of Python that the package is for, as in 3.9; empty where any does.
	Python string
	// Sum is its SHA-256, Size its bytes.
	Sum  string
	Size int64
	// Members are what is taken out of it.
	Members []Member
}

// Member is a file or a folder of an archive.
type Member struct {
	// Path is its path inside the archive; that of a folder ends with a slash.
	Path string
	// File is its path below the release's folder, "." for a folder whose files go right there.
	File string
	// Sum is a file's SHA-256 and Bytes its size; a folder has none, the archive's holds for it.
	Sum   string
	Bytes int64
}

// Env returns the environment variable that names the library's path.
func (r *Runtime) Env() string { return cmp.Or(r.Variable, "TUTTI_"+strings.ToUpper(r.Name)+"_LIB") }

// Key returns the backend's setting that names the library's path.
func (r *Runtime) Key() string { return cmp.Or(r.Setting, "library-path") }

// releases returns those for this system, best first.
func (r *Runtime) releases() []Release {
	return slices.DeleteFunc(slices.Clone(r.Releases), func(p Release) bool {
		return p.OS != runtime.GOOS || p.Arch != runtime.GOARCH
	})
}

func (m *Member) folder() bool { return strings.HasSuffix(m.Path, "/") }

// List returns the runtimes that this program knows.
func List() []Runtime {
	return []Runtime{onnxRuntime(), openVINO(), torch(), tensorFlow(), python()}
}
