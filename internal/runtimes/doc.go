// Package runtimes finds and fetches the native libraries that backends open at run time.
//
// A runtime is described by one value (catalog.go): its pinned releases, with the package client that carries each, the
// file inside the archive and the hashes of both. Fetch puts the library into a folder of the project and into a cache of
// the user's, so that a second checkout copies instead of fetching. Find tells a backend which file to open.
package runtimes
