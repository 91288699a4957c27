package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
	"github.com/tutti-server/tutti/internal/repository"
)

// bucket is a bucket in memory.
type bucket struct {
	mu    sync.Mutex
	data  map[string]string // guarded by mu
	fault error             // returned by listings, guarded by mu
	torn  error             // returned by reads, guarded by mu
	reads int               // guarded by mu
}

func (b *bucket) set(key, data string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[key] = data
}

func (b *bucket) break_(listing, reading error) int { //nolint:revive // break is a word of the language
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.torn = listing, reading
	return b.reads
}

func (b *bucket) List(_ context.Context, prefix string) ([]cloud.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []cloud.Object
	for key, data := range b.data {
		if strings.HasPrefix(key, prefix) {
			list = append(list, cloud.Object{Key: key, Size: int64(len(data)), Tag: strconv.Quote(data)})
		}
	}
	slices.SortFunc(list, func(a, b cloud.Object) int { return strings.Compare(a.Key, b.Key) })
	return list, b.fault
}

func (b *bucket) Read(_ context.Context, o cloud.Object, offset int64) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	data, ok := b.data[o.Key]
	if !ok {
		return nil, status.Errorf(status.NotFound, "there is no '%s'", o.Key)
	}
	return io.NopCloser(strings.NewReader(data[offset:])), b.torn
}

func (b *bucket) Write(_ context.Context, key string, body io.ReadSeeker, _ int64) error {
	data, err := io.ReadAll(body)
	b.set(key, string(data))
	return err
}

func (*bucket) Delete(context.Context, string) error { return errors.ErrUnsupported }

// inBuckets makes the repository open these buckets, by address.
func (w *world) inBuckets(tb testing.TB, all map[string]cloud.Bucket) {
	tb.Helper()
	w.more.Cache = tb.TempDir()
	w.more.OpenBucket = func(_ context.Context, address string) (cloud.Bucket, error) { return all[address], nil }
}

func TestBucket(t *testing.T) {
	t.Parallel()
	b := &bucket{data: map[string]string{
		"m/config.pbtxt": doubles, "m/1/": "", "README": "no model", "notes/x": "no model",
		"bad/config.pbtxt": doubles, "bad/1/x": "", "bad/../../etc/passwd": "x",
		"e/config.pbtxt": strings.SplitN(ensemble("e", step("m", "-1", "IN", "X")), "--\n", 2)[1],
	}}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": b})
	w.more.Mode = repository.Polled
	r := w.repo(t, "s3://one")
	if d := cmp.Diff(map[string]string{"bad": "object 'bad/../../etc/passwd' of s3://one is outside the model's folder"}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	for _, name := range []string{"m", "e"} {
		if v, err := send(t.Context(), r, w.request(name, 4)); err != nil || v != 8 {
			t.Errorf("%s returned %v, %v", name, v, err)
		}
	}
	poll := func() {
		t.Helper()
		for range 2 { // a change is loaded once two polls have seen it
			if err := r.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := b.break_(nil, nil)
	poll()
	if after := b.break_(nil, nil); after != before {
		t.Errorf("%d reads although nothing has changed", after-before)
	}
	b.set("m/2/data", "new")
	poll()
	if md, err := r.Metadata("m", 0); err != nil || !cmp.Equal(md.Versions, []string{"2"}) {
		t.Errorf("after a new version: %+v, %v", md, err)
	}
	if after := b.break_(nil, errors.New("reset")); after != before+1 {
		t.Errorf("%d reads of one new file", after-before)
	}
	b.set("m/3/data", "newer")
	poll()
	if v, err := send(t.Context(), r, w.request("e", 4)); err != nil || v != 8 {
		t.Errorf("while reading fails: %v, %v", v, err)
	}
	want := "fetching model 'm' from s3://one: reading object 'm/3/data' ended after 0 of 5 bytes: reset"
	if got := failures(r)["m"]; got != "" {
		t.Errorf("a serving model is a failure: %s", got)
	}
	if i := slices.IndexFunc(r.Index(false), func(e infer.Entry) bool { return e.Name == "m" && e.Reason == want }); i < 0 {
		t.Errorf("index %+v does not say %q", r.Index(false), want)
	}
	b.break_(errors.New("timed out"), nil)
	poll()
	if v, err := send(t.Context(), r, w.request("m", 4)); err != nil || v != 8 {
		t.Errorf("while listing fails: %v, %v", v, err)
	}
}

// TestBrokenBucket checks that a bucket which fails leaves the models of the other repository serving.
func TestBrokenBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lines bytes.Buffer
	w.log = slog.NewTextHandler(&lines, nil)
	w.inBuckets(t, map[string]cloud.Bucket{"gs://closed": &bucket{fault: errors.New("listing gs://closed: status 403 Forbidden")}, "as://a/empty": &bucket{}})
	r := w.repo(t, "gs://closed", folder(t, doubleModel), "as://a/empty")
	if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
		t.Errorf("a model beside it: %v, %v", v, err)
	}
	want := map[string]string{"gs://closed": "listing gs://closed: status 403 Forbidden", "as://a/empty": "listing as://a/empty: nothing is there"}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if r.Ready() {
		t.Error("ready although a repository was never seen")
	}
	if !strings.Contains(lines.String(), "model repository cannot be listed") {
		t.Errorf("log: %s", lines.String())
	}
}

// TestS3Server checks a repository on an S3 server, and a second start from the local cache.
func TestS3Server(t *testing.T) {
	t.Parallel()
	address := "s3://" + cloudtest.S3(t, "models") + "/models/repo"
	b, err := cloud.Open(t.Context(), address, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range map[string]string{"plain/config.pbtxt": doubles, "plain/1/big": strings.Repeat("x", 1<<20)} {
		if err := b.Write(t.Context(), key, strings.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{address: b})
	var told int64
	var mu sync.Mutex
	w.more.Progress = func(_ string, done, _ int64) {
		mu.Lock()
		defer mu.Unlock()
		told = max(told, done)
	}
	for i := range 2 {
		r, err := w.open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
			t.Errorf("round %d: %v, %v", i, v, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := int64(1<<20+len(doubles)) * int64(1-i); told != want {
			t.Errorf("round %d: %d bytes came, want %d", i, told, want)
		}
		told = 0
	}
}

// TestCachePruning checks that pruning keeps the cached model which is in use, and files of other programs.
func TestCachePruning(t *testing.T) {
	t.Parallel()
	b := &bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/x": "mine", "gone/config.pbtxt": doubles, "gone/1/y": "theirs"}}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": b})
	serve := func() {
		t.Helper()
		r, err := w.open(t.Context(), "s3://one")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(t.Context()); err != nil || len(r.Failures()) > 0 {
			t.Error(err, r.Failures())
		}
	}
	count := func() (n int) {
		t.Helper()
		for _, pattern := range []string{"models/*", "objects/*"} {
			list, err := filepath.Glob(filepath.Join(w.more.Cache, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range list {
				if !strings.HasSuffix(path, ".lock") {
					n++
				}
			}
		}
		return n
	}
	serve()
	foreign := []string{filepath.Join(w.more.Cache, "models", "mine"), filepath.Join(w.more.Cache, "objects", "mine")}
	defer func() {
		for _, path := range foreign {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("a file of another program: %v", err)
			}
		}
	}()
	for _, path := range foreign {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 8 {
		t.Fatalf("%d models and objects, want 8", n)
	}
	old := time.Now().Add(-31 * 24 * time.Hour)
	for _, pattern := range []string{"models/*", "objects/*"} {
		list, _ := filepath.Glob(filepath.Join(w.more.Cache, pattern)) // the pattern is valid
		for _, path := range list {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.mu.Lock()
	delete(b.data, "gone/config.pbtxt")
	delete(b.data, "gone/1/y")
	b.mu.Unlock()
	serve()
	if n := count(); n != 5 {
		t.Errorf("%d models and objects are left, want 5", n)
	}
	before := b.break_(nil, nil)
	serve()
	if after := b.break_(nil, nil); after != before {
		t.Errorf("%d reads of a model in use", after-before)
	}
}

// TestTwins checks two models of a bucket with the same content.
func TestTwins(t *testing.T) {
	t.Parallel()
	b := &bucket{data: map[string]string{"a/config.pbtxt": doubles, "a/1/": "", "b/config.pbtxt": doubles, "b/1/": ""}}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": b})
	r := w.repo(t, "s3://one")
	if d := cmp.Diff(map[string]string{}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}

// TestDamagedCache checks that a truncated file of the local cache is downloaded again.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	b := &bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/data": "something"}}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": b})
	if err := w.repo(t, "s3://one").Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := 0
	err := filepath.WalkDir(w.more.Cache, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "data" {
			cut++
			err = errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 3))
		}
		return err
	})
	if err != nil || cut != 1 {
		t.Fatalf("%d files cut, %v", cut, err)
	}
	before := b.break_(nil, nil)
	r := w.repo(t, "s3://one")
	if after := b.break_(nil, nil); after != before+1 {
		t.Errorf("%d reads of one damaged file", after-before)
	}
	if d := cmp.Diff(map[string]string{}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}

// TestFetchAgain checks that a later poll downloads an object which failed before, although the bucket has not
// changed.
func TestFetchAgain(t *testing.T) {
	t.Parallel()
	b := &bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/data": "x"}}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": b})
	w.more.Mode = repository.Polled
	b.break_(nil, status.Errorf(status.NotFound, "no"))
	r := w.repo(t, "s3://one")
	if got := failures(r)["m"]; !strings.HasPrefix(got, "fetching model 'm' from s3://one: ") {
		t.Errorf("failure %q", got)
	}
	b.break_(nil, nil)
	for range 2 {
		if err := r.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string]string{}, failures(r)); d != "" {
		t.Errorf("failures after it is there (-want +got):\n%s", d)
	}
}
