package repository

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// fetchThreads is the number of objects of a model that are downloaded concurrently.
const fetchThreads = 8

// fetch downloads a model, if it is not in the cache, and returns its folder.
func (m *bucketRoot) fetch(ctx context.Context, model string, list []cloud.Object) (string, error) {
	dir := m.dir(model, list)
	if complete(dir, list) {
		_ = os.Chtimes(filepath.Dir(dir), time.Now(), time.Now()) // it is in use; may fail: a read-only cache is pruned by its owner
		return dir, nil
	}
	if err := m.takeFetchError(dir); err != nil {
		return "", err
	}
	for _, o := range list {
		if key := strings.TrimSuffix(o.Key, "/"); key != "" && !filepath.IsLocal(key) || strings.ContainsAny(key, "\\\x00") {
			return "", status.Errorf(status.InvalidArg, "object '%s/%s' of %s is outside the model's folder", model, o.Key, m.address)
		}
	}
	objects := filepath.Join(m.cache, "objects")
	err := os.MkdirAll(objects, 0o700)
	if err == nil {
		err = m.fetchObjects(ctx, model, objects, list)
	}
	if err == nil {
		err = m.assemble(model, dir, objects, list)
	}
	if err != nil {
		return "", status.Prefixf(diskfull.Explain(err, m.cache, "start the server with XDG_CACHE_HOME at another disk"), "fetching model '%s' from %s: ", model, m.address)
	}
	return dir, nil
}

func (m *bucketRoot) dir(model string, list []cloud.Object) string {
	return filepath.Join(m.cache, "models", m.state(model, list), model)
}

// prefetch downloads models ahead of opening them. fetch returns an error of prefetch once.
func (*source) prefetch(ctx context.Context, places []location) {
	for _, p := range places {
		if p.bucket == nil || p.duplicate != "" {
			continue
		}
		dir := p.bucket.dir(p.name, p.objects)
		_ = p.bucket.takeFetchError(dir) // of an earlier attempt
		if _, err := p.bucket.fetch(ctx, p.name, p.objects); err != nil && ctx.Err() == nil {
			p.bucket.mu.Lock()
			p.bucket.failed[dir] = err
			p.bucket.mu.Unlock()
		}
	}
}

// takeFetchError returns and forgets the error of the last prefetch.
func (m *bucketRoot) takeFetchError(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.failed[dir]
	delete(m.failed, dir)
	return err
}

// complete reports whether a model's folder has every file in its full size. A full disk or a crash may have left less.
func complete(dir string, list []cloud.Object) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	for _, o := range list {
		if !folderKey(o) && !ignoredKey(o.Key) && !hasSize(filepath.Join(dir, filepath.FromSlash(o.Key)), o.Size) {
			return false
		}
	}
	return true
}

func hasSize(file string, size int64) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// fetchObjects downloads the objects that are not in the cache, several concurrently.
func (m *bucketRoot) fetchObjects(ctx context.Context, model, objects string, list []cloud.Object) error {
	missing := map[string]cloud.Object{}
	p := &progress{model: model, report: m.report, log: m.log}
	for _, o := range list {
		id := m.identity(model, o)
		if !folderKey(o) && !ignoredKey(o.Key) && !hasSize(filepath.Join(objects, id), o.Size) {
			if _, twice := missing[id]; !twice {
				missing[id] = o
				p.total += o.Size
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	began := telemetry.Now()
	m.log.InfoContext(ctx, "fetching model", slog.String("model", model), slog.String("from", m.address), slog.Int("files", len(missing)), slog.Int64("bytes", p.total))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(m.timeout, func() {
		cancel(status.Reasonf(status.StorageUnavailable, "nothing came for %s", m.timeout))
	})
	defer watch.Stop()
	wrote := func(n int64, fetched bool) {
		watch.Reset(m.timeout)
		p.wrote(n, fetched)
	}
	stalled := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchThreads)
	for id, o := range missing {
		g.Go(func() (err error) {
			defer recovery.Error(&err, m.log, "fetching model '"+model+"'", slog.String("model", model))
			whole := o
			whole.Key = model + "/" + o.Key
			return m.fetchOne(ctx, whole, filepath.Join(objects, id), wrote)
		})
	}
	err := g.Wait()
	if cause := context.Cause(stalled); err != nil && status.CodeOf(cause) == status.Unavailable {
		err = cause
	}
	took := telemetry.Now() - began
	m.fetched(p.fetched.Load(), took)
	if err == nil {
		m.log.InfoContext(ctx, "model fetched", slog.String("model", model), slog.Int64("bytes", p.fetched.Load()), slog.Int64("resumed_bytes", p.total-p.fetched.Load()), slog.Int64("took_ms", took/1e6))
	}
	return err
}

// fetchOne downloads one object. Other processes may download the same object at the same time: the one that holds
// the lock resumes the shared partial file, the others use a temporary file.
func (m *bucketRoot) fetchOne(ctx context.Context, o cloud.Object, file string, wrote func(int64, bool)) error {
	partial := file + ".part"
	lock, err := tryLock(file + ".lock")
	switch {
	case err != nil:
		return err
	case lock == nil:
		own, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.part")
		if err != nil {
			return err
		}
		partial = own.Name()
		defer os.Remove(partial)
		if err := own.Close(); err != nil {
			return err
		}
	default:
		defer lock.Close()
		if hasSize(file, o.Size) {
			return nil // the previous holder of the lock downloaded it
		}
	}
	return cloud.Copy(ctx, m.bucket, o, file, partial, wrote)
}

func folderKey(o cloud.Object) bool { return strings.HasSuffix(o.Key, "/") || o.Key == "" }

// assemble creates the folder of a model atomically, by one rename.
func (m *bucketRoot) assemble(model, dir, objects string, list []cloud.Object) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(dir)), 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Dir(dir)), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, o := range list {
		if ignoredKey(o.Key) {
			continue
		}
		at := filepath.Join(temp, model, filepath.FromSlash(o.Key))
		if folderKey(o) {
			err = os.MkdirAll(at, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o700); err == nil {
			err = link(filepath.Join(objects, m.identity(model, o)), at)
		}
		if err != nil {
			return err
		}
	}
	err = os.Rename(temp, filepath.Dir(dir))
	if err == nil || complete(dir, list) {
		return nil // another process may have created it first
	}
	if rerr := os.RemoveAll(filepath.Dir(dir)); rerr != nil { // remove a damaged folder
		return errors.Join(err, rerr)
	}
	return os.Rename(temp, filepath.Dir(dir))
}

// link makes a hard link, or a copy if the file system has none.
func link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	src, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(filepath.Clean(to), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// logEvery is the number of bytes between two log lines about a download.
const logEvery = 256 << 20

// progress counts the downloaded bytes of a model.
type progress struct {
	model         string
	total         int64
	done, fetched atomic.Int64
	report        func(model string, done, total int64)
	log           *slog.Logger
}

// wrote adds n bytes. fetched is false for bytes that an earlier attempt left.
func (p *progress) wrote(n int64, fetched bool) {
	done := p.done.Add(n)
	if fetched {
		p.fetched.Add(n)
	}
	switch {
	case p.report != nil:
		p.report(p.model, done, p.total)
	case done/logEvery != (done-n)/logEvery:
		p.log.Info("fetching model goes on", slog.String("model", p.model), slog.Int64("bytes", done), slog.Int64("of", p.total))
	}
}

// tryLock acquires a lock between processes. It returns nil if another process holds it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the cache
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor is small
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
