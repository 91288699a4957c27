package repository_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/repository"
)

const (
	panicText = "loading model 'panics' failed: panic: a defect in the backend"
	// warmed is a model that panics in its warm-up request.
	warmed = `
-- warmed/1/ --
-- warmed/config.pbtxt --
backend: "native" parameters { key: "step" value { string_value: "explode" } }
model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 1 zero_data: true } } }
`
)

func explode(context.Context, *backends.Batch) error { panic("a defect in the step") }

// TestPanicWhileLoading checks that a panic at start fails only the model and the ensembles with it, and that the
// log has the stack.
// shows: recovery
func TestPanicWhileLoading(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stepOf("explode", true, explode))
	var lines bytes.Buffer
	w.log = slog.NewTextHandler(&lines, nil)
	r := w.repo(t, folder(t, pair+plain("panics", "spy")+warmed+ensemble("over", step("panics", "-1", "IN", "X"))))
	wantValues(t, w, r, map[string]float32{"part": 2, "other": 2})
	failed := failures(r)
	if d := cmp.Diff([]string{"over", "panics", "warmed"}, slices.Sorted(maps.Keys(failed))); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	for name, want := range map[string]string{"panics": panicText, "over": panicText, "warmed": "panic: a defect in the step"} {
		if !strings.Contains(failed[name], want) {
			t.Errorf("%s fails with %q, want %q", name, failed[name], want)
		}
	}
	for _, want := range []string{"level=ERROR", "model=panics", "(*spy).Load", "repository_test.explode"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &lines)
		}
	}
}

// TestPanicWhilePolling checks that a new model which panics leaves the others serving.
func TestPanicWhilePolling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Polled
	root := folder(t, pair)
	r := w.repo(t, root)
	write(t, root, "panics/config.pbtxt", `backend: "spy"`)
	write(t, root, "panics/1/weights", "")
	poll(t, r, 3)
	wantValues(t, w, r, map[string]float32{"part": 2, "other": 2})
	if d := cmp.Diff(map[string]string{"panics": panicText}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if n := w.spy.count("try panics"); n != 1 {
		t.Errorf("%d tries of an unchanged folder, want 1", n)
	}
}

// TestPanicWhileControlled checks that an explicit load of a model which panics fails.
func TestPanicWhileControlled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair+plain("panics", "spy")), "part")
	err := r.Load(t.Context(), "panics", infer.LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), panicText) {
		t.Errorf("loading gave %v, want %q", err, panicText)
	}
	load(t, r, "other", "")
	wantValues(t, w, r, map[string]float32{"part": 2, "other": 2})
}

// panicky is a bucket that panics when an object is read, or when it is listed.
type panicky struct {
	bucket

	listing bool
}

func (b *panicky) List(ctx context.Context, prefix string) ([]cloud.Object, error) {
	if b.listing {
		panic("a defect in the listing")
	}
	return b.bucket.List(ctx, prefix)
}

func (*panicky) Read(context.Context, cloud.Object, int64) (io.ReadCloser, error) {
	panic("a defect in the bucket")
}

// TestPanicInBucket checks panics in the goroutines that list and download.
func TestPanicInBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inBuckets(t, map[string]cloud.Bucket{
		"s3://torn":   &panicky{bucket: bucket{data: map[string]string{"m/config.pbtxt": doubles, "m/1/x": "x"}}},
		"s3://closed": &panicky{listing: true},
	})
	r := w.repo(t, folder(t, doubleModel), "s3://torn", "s3://closed")
	wantValues(t, w, r, map[string]float32{"plain": 2})
	failed := failures(r)
	for name, want := range map[string]string{"m": "panic: a defect in the bucket", "s3://closed": "panic: a defect in the listing"} {
		if !strings.Contains(failed[name], want) {
			t.Errorf("%s fails with %q, want %q", name, failed[name], want)
		}
	}
}
