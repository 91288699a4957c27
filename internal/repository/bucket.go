package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/recovery"
)

// listBuckets lists all buckets concurrently. Errors are logged and kept with the bucket.
func (s *source) listBuckets(ctx context.Context) {
	var g sync.WaitGroup
	for _, m := range s.buckets {
		g.Go(func() {
			if err := m.refresh(ctx); err != nil {
				m.log.ErrorContext(ctx, "model repository cannot be listed", slog.String("repository", m.address), slog.String("error", err.Error()))
			}
		})
	}
	g.Wait()
}

// openAll opens models, several concurrently, and returns them in the given order.
func (s *source) openAll(ctx context.Context, places []location, threads int) []*folder {
	list := make([]*folder, len(places))
	var g errgroup.Group
	g.SetLimit(threads)
	for i, p := range places {
		g.Go(func() error {
			list[i] = s.open(ctx, p)
			return nil
		})
	}
	_ = g.Wait() // errors are in the folders
	shareSteps(list)
	return list
}

func (r *Repository) newBucketRoot(ctx context.Context, address string) (*bucketRoot, error) {
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
	return &bucketRoot{
		timeout: cmp.Or(r.s.BucketTimeout, time.Minute), failed: map[string]error{},
		address: strings.TrimRight(address, "/"), cache: cache, bucket: b, log: r.s.Log, report: r.s.Progress, fetched: r.s.Metrics.Fetched,
	}, err
}

// mounts names Triton's environment variables for the cache folder of each kind of bucket.
var mounts = map[string]string{"s3": "TRITON_AWS_MOUNT_DIRECTORY", "gs": "TRITON_GCS_MOUNT_DIRECTORY", "as": "TRITON_AZURE_MOUNT_DIRECTORY"}

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

// bucketRoot is a root in a bucket. Models are downloaded into a cache on disk when they are opened. The cache
// stores each object once, by its content, and a folder of hard links for each state of a model, so nothing is
// downloaded twice.
type bucketRoot struct {
	address string
	cache   string
	timeout time.Duration
	bucket  cloud.Bucket
	log     *slog.Logger
	fetched func(bytes, ns int64)
	report  func(model string, done, total int64)

	mu     sync.Mutex
	models map[string][]cloud.Object // of the last listing by model, guarded by mu
	failed map[string]error          // errors of prefetch by folder, guarded by mu
	err    atomic.Pointer[error]     // of the last listing; nil after success
}

// refresh lists the bucket. After an error the previous listing remains.
func (m *bucketRoot) refresh(ctx context.Context) error {
	list, err := m.listObjects(ctx)
	if err == nil && len(list) == 0 {
		err = status.Errorf(status.NotFound, "listing %s: nothing is there", m.address)
	}
	if err != nil {
		m.err.Store(&err)
		return err
	}
	models := map[string][]cloud.Object{}
	for _, o := range list {
		if name, rest, ok := strings.Cut(o.Key, "/"); ok && name != "" && !strings.HasPrefix(name, ".") {
			o.Key = rest
			models[name] = append(models[name], o)
		}
	}
	maps.DeleteFunc(models, func(_ string, list []cloud.Object) bool { return !slices.ContainsFunc(list, marksModel) })
	m.mu.Lock()
	m.models = models
	m.mu.Unlock()
	m.err.Store(nil)
	return nil
}

// listObjects lists the bucket within its timeout.
func (m *bucketRoot) listObjects(ctx context.Context) (list []cloud.Object, err error) {
	defer recovery.Error(&err, m.log, "listing model repository '"+m.address+"'", slog.String("repository", m.address))
	bounded, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	list, err = m.bucket.List(bounded, "")
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = status.Reasonf(status.StorageUnavailable, "listing %s: no answer within %s", m.address, m.timeout)
	}
	return list, err
}

// neverListed reports whether no listing has succeeded yet.
func (m *bucketRoot) neverListed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.models == nil
}

// objects returns the objects of a model; nil for an unknown one.
func (m *bucketRoot) objects(name string) []cloud.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.models[name]
}

func (m *bucketRoot) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.models))
}

// marksModel reports whether an object makes its folder a model; see source.holdsModel.
func marksModel(o cloud.Object) bool {
	first, _, ok := strings.Cut(o.Key, "/")
	_, version := config.VersionOf(first)
	return o.Key == config.FileName || ok && version
}

// identity returns the name of an object's content in the cache. It is made of the checksum if the bucket has one,
// else of the object's address, tag and size.
func (m *bucketRoot) identity(model string, o cloud.Object) string {
	text := fmt.Sprintf("%x %d", o.MD5, o.Size)
	if len(o.MD5) == 0 {
		text = fmt.Sprintf("%s %s %s %s %d", m.address, model, o.Key, o.Tag, o.Size)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// state returns a name for the present objects of a model. The model's name is part of it: a state's folder is
// created by one rename, so two models with equal content cannot share it.
func (m *bucketRoot) state(model string, list []cloud.Object) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00", model)
	for _, o := range list {
		if !ignoredKey(o.Key) {
			fmt.Fprintf(h, "%s\x00%s\x00", o.Key, m.identity(model, o))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ignoredKey reports whether any part of a key is an ignored file.
func ignoredKey(key string) bool {
	return slices.ContainsFunc(strings.Split(strings.TrimSuffix(key, "/"), "/"), ignoredFile)
}

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
	states := eachOld(filepath.Join(cache, "models"), before, func(path string, _ fs.FileInfo) error { return os.RemoveAll(path) })
	objects := eachOld(filepath.Join(cache, "objects"), before, func(path string, info fs.FileInfo) error {
		if s, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && s.Nlink > 1 { // a state has it
			return nil
		}
		removed++
		return os.Remove(path)
	})
	return removed, errors.Join(states, objects)
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
