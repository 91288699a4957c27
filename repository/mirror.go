package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tutti/cloud"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/telemetry"
)

// look lists the buckets, all at once. A failure is logged and kept with its bucket.
func (s *source) look(ctx context.Context) {
	var g sync.WaitGroup
	for _, m := range s.mirrors {
		g.Go(func() {
			if err := m.look(ctx); err != nil {
				m.log.ErrorContext(ctx, "model repository cannot be listed", slog.String("repository", m.address), slog.String("error", err.Error()))
			}
		})
	}
	g.Wait()
}

// openAll opens models, several at a time, in their order.
func (s *source) openAll(ctx context.Context, places []place, threads int) []*folder {
	list := make([]*folder, len(places))
	var g errgroup.Group
	g.SetLimit(threads)
	for i, p := range places {
		g.Go(func() error {
			list[i] = s.open(ctx, p)
			return nil
		})
	}
	_ = g.Wait() // every failure is kept with its folder
	return list
}

// newMirror prepares a root in a bucket.
func (r *Repository) newMirror(ctx context.Context, address string) (*mirror, error) {
	open := r.s.OpenBucket
	if open == nil {
		open = func(ctx context.Context, address string) (cloud.Bucket, error) {
			return cloud.Open(ctx, address, &cloud.Options{Env: os.Getenv})
		}
	}
	b, err := open(ctx, address)
	if err != nil {
		return nil, err
	}
	cache, err := r.cacheFor(address)
	return &mirror{
		address: strings.TrimRight(address, "/"), cache: cache, bucket: b, log: r.s.Log, report: r.s.Progress, fetched: r.s.Metrics.Fetched,
	}, err
}

// mounts names the environment variables that Triton keeps fetched models below.
var mounts = map[string]string{"s3": "TRITON_AWS_MOUNT_DIRECTORY", "gs": "TRITON_GCS_MOUNT_DIRECTORY", "as": "TRITON_AZURE_MOUNT_DIRECTORY"}

// cacheFor returns the folder that models from an address are kept below.
func (r *Repository) cacheFor(address string) (string, error) {
	if r.s.Cache != "" {
		return r.s.Cache, nil
	}
	scheme, _, _ := strings.Cut(address, "://")
	if dir := os.Getenv(mounts[scheme]); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "tutti", "models"), err
}

// fetchThreads is how many objects of a model are read at a time.
const fetchThreads = 8

// mirror is a root that lies in a bucket. Its models are read into a folder on disk
// when they are opened: objects by their content, and per state of a model a folder
// of links to them, so that what is there is not read again.
type mirror struct {
	address string
	cache   string
	bucket  cloud.Bucket
	log     *slog.Logger
	fetched func(bytes, ns int64)
	report  func(model string, done, total int64)

	mu     sync.Mutex
	models map[string][]cloud.Object // of the last listing, guarded by mu
	err    atomic.Pointer[error]     // of the last listing, nil when it worked
}

// look lists the bucket. What is there stays known when that fails.
func (m *mirror) look(ctx context.Context) error {
	list, err := m.bucket.List(ctx, "")
	if err == nil && len(list) == 0 {
		err = status.Errorf(status.NotFound, "listing %s: nothing is there", m.address)
	}
	if err != nil {
		m.err.Store(&err)
		return err
	}
	models := map[string][]cloud.Object{}
	for _, o := range list {
		if name, rest, ok := strings.Cut(o.Key, "/"); ok && name != "" {
			o.Key = rest
			models[name] = append(models[name], o)
		}
	}
	m.mu.Lock()
	m.models = models
	m.mu.Unlock()
	m.err.Store(nil)
	return nil
}

// blind reports whether the bucket could never be listed.
func (m *mirror) blind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.models == nil
}

// place returns where a model is; one that is not known has no objects.
func (m *mirror) place(name string) place {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := place{name: name, dir: m.address + "/" + name, mirror: m}
	if list := m.models[name]; holdsObjects(name, list) {
		p.objects = list
	}
	return p
}

// names returns the models, sorted.
func (m *mirror) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, list := range m.models {
		if holdsObjects(name, list) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// holdsObjects is holdsModel for a listing.
func holdsObjects(name string, list []cloud.Object) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	return slices.ContainsFunc(list, func(o cloud.Object) bool {
		first, _, ok := strings.Cut(o.Key, "/")
		_, version := config.VersionOf(first)
		return o.Key == config.FileName || ok && version
	})
}

// identity names an object's content on disk: by its checksum where the bucket tells
// one, else by where it is and its tag.
func (m *mirror) identity(model string, o cloud.Object) string {
	text := fmt.Sprintf("%x %d", o.MD5, o.Size)
	if len(o.MD5) == 0 {
		text = fmt.Sprintf("%s %s %s %s %d", m.address, model, o.Key, o.Tag, o.Size)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// state names what a model holds.
func (m *mirror) state(model string, list []cloud.Object) string {
	h := sha256.New()
	for _, o := range list {
		if !noisy(o.Key) {
			fmt.Fprintf(h, "%s\x00%s\x00", o.Key, m.identity(model, o))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// noisy reports whether any part of a key is noise.
func noisy(key string) bool {
	return slices.ContainsFunc(strings.Split(strings.TrimSuffix(key, "/"), "/"), noise)
}

// fetch brings a model to disk and returns its folder.
func (m *mirror) fetch(ctx context.Context, model string, list []cloud.Object) (string, error) {
	dir := filepath.Join(m.cache, "models", m.state(model, list), model)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir, nil
	}
	for _, o := range list {
		if key := strings.TrimSuffix(o.Key, "/"); key != "" && !filepath.IsLocal(key) || strings.ContainsAny(key, "\\\x00") {
			return "", status.Errorf(status.InvalidArg, "object '%s/%s' of %s is outside the model's folder", model, o.Key, m.address)
		}
	}
	objects := filepath.Join(m.cache, "objects")
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return "", err
	}
	if err := m.fetchObjects(ctx, model, objects, list); err != nil {
		return "", fmt.Errorf("fetching model '%s' from %s: %w", model, m.address, err)
	}
	return dir, m.assemble(model, dir, objects, list)
}

// fetchObjects reads what is not on disk yet, several objects at a time.
func (m *mirror) fetchObjects(ctx context.Context, model, objects string, list []cloud.Object) error {
	missing := map[string]cloud.Object{}
	p := &progress{model: model, report: m.report, log: m.log}
	for _, o := range list {
		id := m.identity(model, o)
		if _, err := os.Stat(filepath.Join(objects, id)); errors.Is(err, fs.ErrNotExist) && !folderKey(o) && !noisy(o.Key) {
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
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchThreads)
	for id, o := range missing {
		g.Go(func() error {
			whole := o
			whole.Key = model + "/" + o.Key
			return m.fetchOne(ctx, whole, filepath.Join(objects, id), p.wrote)
		})
	}
	err := g.Wait()
	took := telemetry.Now() - began
	m.fetched(p.fetched.Load(), took)
	if err == nil {
		m.log.InfoContext(ctx, "model fetched", slog.String("model", model), slog.Int64("bytes", p.fetched.Load()), slog.Int64("resumed_bytes", p.total-p.fetched.Load()), slog.Int64("took_ms", took/1e6))
	}
	return err
}

// fetchOne reads an object beside others who may read the same: who finds its
// partial file in use reads into one of its own.
func (m *mirror) fetchOne(ctx context.Context, o cloud.Object, file string, wrote func(int64, bool)) error {
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
		if _, err := os.Stat(file); err == nil {
			return nil // who had the lock before read it
		}
	}
	return cloud.Copy(ctx, m.bucket, o, file, partial, wrote)
}

// folderKey reports whether an object only stands for a folder.
func folderKey(o cloud.Object) bool { return strings.HasSuffix(o.Key, "/") || o.Key == "" }

// assemble makes the folder of a model in one step.
func (m *mirror) assemble(model, dir, objects string, list []cloud.Object) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(dir)), 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Dir(dir)), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, o := range list {
		if noisy(o.Key) {
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
	if info, serr := os.Stat(dir); serr == nil && info.IsDir() {
		return nil // another process was first, which is as good
	}
	return err
}

// link gives a file a second name, or copies it where that cannot be.
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
