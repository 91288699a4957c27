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

// cacheAge is how long an unused model stays in the cache.
const cacheAge = 30 * 24 * time.Hour

// prune removes models that were not used for cacheAge from the caches. Another server that still serves such a
// model has its files open, and downloads them again when needed.
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

// pruneCache removes the states last used before a time, then the objects without a state. It returns the number of
// removed objects.
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

// ours matches the names of states and objects. Other files in the cache folder are left alone.
var ours = regexp.MustCompile(`^(\.new-\d+|[0-9a-f]{32}(\.\d+)?(\.part)?)$`)

// eachOld calls visit for the cache's entries that were last used before a time. Another server may remove them
// concurrently.
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

// linked reports whether a file has more than one hard link.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}

// touch records that a state of a model is in use.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(dir), now, now) // may fail: a read-only cache is pruned by its owner
}
