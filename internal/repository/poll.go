package repository

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// watch polls the folders until Close.
func (r *Repository) watch(ctx context.Context) {
	ctx, r.stop = context.WithCancel(ctx)
	r.polling.Go(func() {
		tick := time.NewTicker(r.s.PollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := r.Poll(ctx); err != nil && ctx.Err() == nil {
					r.s.Log.ErrorContext(ctx, "looking at the model repository failed", slog.String("error", err.Error()))
				}
			}
		}
	})
}

// Poll looks at the folders once and loads, replaces and unloads models accordingly. A change counts only if the
// folder was in the same state at the previous poll, so a half-copied model is not loaded. A model that fails to
// load continues to serve its old version.
func (r *Repository) Poll(ctx context.Context) (err error) {
	defer recovery.Error(&err, r.s.Log, "looking at the model repository")
	if r.s.Mode != Polled {
		return status.Errorf(status.Unsupported, "the repository is not polled")
	}
	// Buckets are listed before the lock is acquired: other changes do not wait for the network.
	r.source.listBuckets(ctx)
	if len(r.source.buckets) > 0 {
		if err := r.prefetchChanged(ctx); err != nil {
			return err
		}
	}
	_, leave, err := r.beginChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	changed, seen, err := r.changed()
	if err != nil {
		return err
	}
	c := r.change(causePoll)
	for _, f := range r.source.openAll(ctx, changed, r.s.LoadThreads) {
		c.begin(ctx, f, true)
	}
	for _, key := range c.base.keys {
		_, before := r.seen[key]
		if _, there := seen[key]; !there && !before {
			delete(c.next, key)
			c.unloaded = append(c.unloaded, key)
		}
	}
	r.seen = seen
	if len(c.loading)+len(c.unloaded) == 0 {
		return nil
	}
	c.load(ctx)
	c.compileOrRevert(ctx)
	if ctx.Err() != nil {
		c.cancel(ctx)
		return status.ErrCancelled
	}
	c.commit(ctx)
	return nil
}

// changed returns the models whose folder differs from what serves and did not change since the previous poll, and
// the fingerprints of all folders.
func (r *Repository) changed() (changed []location, seen map[string]uint64, err error) {
	places, err := r.source.locations()
	if err != nil {
		return nil, nil, err
	}
	seen = make(map[string]uint64, len(places))
	base := r.catalog.Load()
	for _, p := range places {
		now := fingerprint(p)
		seen[p.key] = now
		if m := base.models[p.key]; r.seen[p.key] == now && (m == nil || m.fingerprint != now) {
			changed = append(changed, p)
		}
	}
	return changed, seen, nil
}

// prefetchChanged downloads the models that the next look finds changed.
func (r *Repository) prefetchChanged(ctx context.Context) error {
	_, leave, err := r.beginChange(ctx)
	if err != nil {
		return err
	}
	changed, _, err := r.changed()
	leave()
	if err == nil {
		r.source.prefetch(ctx, changed)
	}
	return err
}

// known returns the keys of the models in s and in the folders, sorted.
func (r *Repository) known(s *snapshot) []string {
	keys := slices.Clone(s.keys)
	_ = r.source.each(func(p location) { keys = append(keys, p.key) }) // a root that cannot be read has none
	slices.Sort(keys)
	return slices.Compact(keys)
}

// The bounds of a walk: links may lead in circles, and a folder may hold anything.
const (
	maxPrintDepth   = 16
	maxPrintEntries = 1 << 17
)

// fingerprint returns a number that changes when a file of the model is added, removed, written, or gets other
// permissions. It is never 0.
func fingerprint(p location) uint64 {
	h := fnv.New64a()
	w := &walk{out: h}
	if p.bucket != nil {
		w.name(p.bucket.state(p.name, p.objects))
	} else {
		w.folder(p.dir, 0)
	}
	if p.duplicate != "" {
		w.name(p.duplicate)
	}
	return max(1, h.Sum64())
}

// walk hashes the names, sizes, times and modes below a folder.
type walk struct {
	out     io.Writer
	skip    func(name string) bool // top-level names to leave out; nil: none
	entries int
	buf     []byte
}

func (w *walk) name(s string) {
	w.buf = append(append(w.buf[:0], s...), 0)
	_, _ = w.out.Write(w.buf) // a hash takes everything
}

// folder adds the content of dir. An unreadable folder counts as empty: loading reports the error.
func (w *walk) folder(dir string, depth int) {
	entries, err := os.ReadDir(dir)
	if err != nil || depth > maxPrintDepth {
		return
	}
	for _, e := range entries {
		if w.entries++; w.entries > maxPrintEntries || ignoredFile(e.Name()) || depth == 0 && w.skip != nil && w.skip(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		w.name(e.Name())
		if info.IsDir() {
			w.folder(path, depth+1)
			w.name("..")
			continue
		}
		w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(info.Size()))
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(info.ModTime().UnixNano()))
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(info.Mode())) // a file that became readable was not written
		_, _ = w.out.Write(w.buf)
	}
}

// ignoredFile reports whether a file is a by-product of using or editing a model: compiled Python modules, hidden
// files, files of editors.
func ignoredFile(name string) bool {
	return name == "__pycache__" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") ||
		strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, ".swp")
}
