// Package runtimes finds and downloads the native libraries that backends open at run time.
//
// A Runtime value (releases.go) describes one library: its pinned releases, the package client of each, and the hashes of
// the archive and of the file in it. Fetch installs the library in a folder of the project and in the user's cache, so
// that a second checkout copies it. For example, "tutti runtime fetch onnxruntime". Find returns the file that a backend
// opens.
package runtimes
