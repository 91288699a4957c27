package repository_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/repository"
)

// silentServer accepts connections and never responds.
func silentServer(t *testing.T) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// hanging is a bucket whose reads block. It signals every read.
type hanging struct {
	bucket
	reading chan struct{}
}

func (h *hanging) Read(ctx context.Context, _ cloud.Object, _ int64) (io.ReadCloser, error) {
	select {
	case h.reading <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentBucket checks that a server which never responds does not delay the models of a folder.
func TestSilentBucket(t *testing.T) {
	t.Parallel()
	address := "s3://http://" + silentServer(t) + "/models"
	b, err := cloud.Open(t.Context(), address, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{address: b})
	w.more.BucketTimeout = 20 * time.Millisecond
	r := w.repo(t, address, folder(t, doubleModel))
	if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
		t.Errorf("a model beside it: %v, %v", v, err)
	}
	if d := cmp.Diff(map[string]string{address: "listing " + address + ": no answer within 20ms"}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}

// TestStalledBucket checks a bucket that can be listed but whose reads block.
func TestStalledBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := &hanging{bucket: bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/": ""}}}
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": h})
	w.more.BucketTimeout = time.Second
	r := w.repo(t, "s3://one", folder(t, doubleModel))
	if d := cmp.Diff(map[string]string{"m": "fetching model 'm' from s3://one: nothing came for 1s"}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
		t.Errorf("a model beside it: %v, %v", v, err)
	}
}

// TestStalledLoad checks that a model of a folder loads while one of a bucket blocks.
func TestStalledLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := &hanging{bucket: bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/": ""}}, reading: make(chan struct{}, 1)}
	w.inBuckets(t, map[string]cloud.Bucket{"s3://one": h})
	w.more.BucketTimeout = time.Hour
	w.more.Mode, w.only = repository.Explicit, []string{}
	r := w.repo(t, "s3://one", folder(t, doubleModel))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Load(ctx, "m", infer.LoadOptions{}) }()
	<-h.reading
	if err := r.Load(t.Context(), "plain", infer.LoadOptions{}); err != nil {
		t.Error(err)
	}
	if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
		t.Errorf("a model beside it: %v, %v", v, err)
	}
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Errorf("the load that was given up: %v", err)
	}
}
