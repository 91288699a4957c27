package repository

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// cacheAge is how long a model stays in the cache when no server asks for it.
const cacheAge = 30 * 24 * time.Hour

// prune removes from the caches of the buckets what was not asked for in a long time.
// A server that goes on serving such a model has its files open, and fetches them
// again should it need them.
func (r *Repository) prune(ctx context.Context) {
	var done []string
	for _, m := range r.source.buckets {
		if slices.Contains(done, m.cache) {
			continue
		}
		done = append(done, m.cache)
		removed, err := pruneCache(m.cache, time.Now().Add(-cacheAge))
		if err != nil {
			r.s.Log.WarnContext(ctx, "unused models stay in the cache", slog.String("folder", m.cache), slog.String("error", err.Error()))
		}
		if removed > 0 {
			r.s.Log.InfoContext(ctx, "unused models removed from the cache", slog.String("folder", m.cache), slog.Int("files", removed))
		}
	}
}

// pruneCache removes states of models last used before a time, and then the objects
// that no state is made of. It returns how many objects went.
func pruneCache(cache string, before time.Time) (removed int, err error) {
	var errs []error
	errs = append(errs, eachOld(filepath.Join(cache, "models"), before, func(path string, _ fs.FileInfo) error {
		return os.RemoveAll(path)
	}))
	errs = append(errs, eachOld(filepath.Join(cache, "objects"), before, func(path string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() || linked(info) {
			return nil
		}
		removed++
		return os.Remove(path)
	}))
	return removed, errors.Join(errs...)
}

// ours matches the names that states and objects have. The folder may hold other
// things, which stay.
var ours = regexp.MustCompile(`^(\.new-\d+|[0-9a-f]{32}(\.\d+)?(\.part)?)$`)

// eachOld calls visit with what a mirror has put into a folder before a time. Another
// server may remove the same.
func eachOld(dir string, before time.Time, visit func(path string, info fs.FileInfo) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && ours.MatchString(e.Name()) && info.ModTime().Before(before) {
			err = visit(filepath.Join(dir, e.Name()), info)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// linked reports whether a file has another name besides its own.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}

// used notes that a state of a model is in use.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(dir), now, now) // a cache that only others may write to is theirs to prune
}
