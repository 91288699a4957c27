package runtimes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Installed are the folders of a runtime's releases that Fetch made in dir and in the user's cache. An empty dir means the
// folders of Find.
func (f *Fetcher) Installed(name, dir string) ([]string, error) {
	list := f.Catalog
	if list == nil {
		list = List()
	}
	r, err := known(list, name)
	if err != nil {
		return nil, err
	}
	folders := []string{dir}
	if dir == "" {
		folders = fetchFolders()
	}
	cache := f.Cache
	if cache == "" {
		if cache, err = cacheFolder(); err != nil {
			return nil, status.Errorf(status.Unavailable, "no cache folder: %w", err)
		}
	}
	var found []string
	for _, folder := range append(folders, cache) {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if r.made(e) {
				path, err := filepath.Abs(filepath.Join(folder, e.Name()))
				if err != nil {
					return nil, err
				}
				found = append(found, path)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// made reports whether a folder is that of a release of the runtime: its name and a version.
func (r *Runtime) made(e fs.DirEntry) bool {
	version, ok := strings.CutPrefix(e.Name(), r.Name+"-")
	return ok && e.IsDir() && version != "" && version[0] >= '0' && version[0] <= '9'
}

// Remove removes all releases of a runtime that Fetch made, and returns their folders. It fails if there are none.
func (f *Fetcher) Remove(name, dir string) ([]string, error) {
	found, err := f.Installed(name, dir)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, status.Errorf(status.NotFound, "no release of '%s' was fetched: 'tutti runtime list' has what is there", name)
	}
	return found, removeAll(found)
}

// Update fetches the release that this program is made for, and removes all others. It returns the library and the folders that
// were removed.
func (f *Fetcher) Update(ctx context.Context, name, dir string) (library string, removed []string, err error) {
	if library, err = f.Fetch(ctx, name, dir); err != nil {
		return "", nil, err
	}
	found, err := f.Installed(name, dir)
	if err != nil {
		return "", nil, err
	}
	current := ""
	for _, folder := range found {
		if strings.HasPrefix(library, folder+string(filepath.Separator)) {
			current = filepath.Base(folder)
		}
	}
	found = slices.DeleteFunc(found, func(folder string) bool { return current == "" || filepath.Base(folder) == current })
	return library, found, removeAll(found)
}

func removeAll(folders []string) error {
	var errs []error
	for _, folder := range folders {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

// local returns the file of an archive among those of From: the one with its size and its SHA-256, whatever its name is.
func (f *Fetcher) local(a *Archive) (string, error) {
	for _, from := range f.From {
		files := []string{from}
		info, err := os.Stat(from)
		if err != nil {
			return "", err
		}
		if info.IsDir() {
			entries, err := os.ReadDir(from)
			if err != nil {
				return "", err
			}
			files = nil
			for _, e := range entries {
				files = append(files, filepath.Join(from, e.Name()))
			}
		}
		for _, file := range files {
			if checkFile(file, a.Sum, a.Size) == nil {
				return file, nil
			}
		}
	}
	c := clients[a.Client][0]
	return "", status.Errorf(status.NotFound, "no file of --from (%s) is %s: expected %d bytes with SHA-256 %s; on a machine with a network: %s",
		strings.Join(f.From, ", "), a.Package, a.Size, a.Sum, strings.Join(slices.Insert(c.arguments(a, "."), 0, c[0]), " "))
}
