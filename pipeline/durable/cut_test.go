package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
	"github.com/tutti-server/tutti/internal/dataset"
)

// watch sees the bucket of a dataset and of its plan. It calls saved whenever a page in progress was saved.
type watch struct {
	mu    sync.Mutex
	saves int
	saved func(ctx context.Context, n int)
	reads []int64 // the offsets at which the dataset was read
}

func (w *watch) options() *dataset.Options {
	return &dataset.Options{OpenBucket: func(ctx context.Context, address string) (cloud.Bucket, error) {
		b, err := cloud.Open(ctx, address, &cloud.Options{Env: func(string) string { return "" }})
		return watched{b, w}, err
	}}
}

// from returns the offset of the last read.
func (w *watch) from() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads[len(w.reads)-1]
}

type watched struct {
	cloud.Bucket
	w *watch
}

func (b watched) Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	err := b.Bucket.Write(ctx, key, body, size)
	if strings.HasSuffix(key, "/cut.json") && err == nil {
		b.w.mu.Lock()
		b.w.saves++
		n := b.w.saves
		b.w.mu.Unlock()
		b.w.saved(ctx, n)
	}
	return err
}

func (b watched) Read(ctx context.Context, o cloud.Object, offset int64) (io.ReadCloser, error) {
	if strings.Contains(o.Key, "rows.jsonl") {
		b.w.mu.Lock()
		b.w.reads = append(b.w.reads, offset)
		b.w.mu.Unlock()
	}
	return b.Bucket.Read(ctx, o, offset)
}

// inBucket returns the address of a bucket with a dataset, and a client of it.
func inBucket(t *testing.T, rows int) (string, cloud.Bucket) {
	t.Helper()
	address := "s3://" + cloudtest.S3(t, "rows") + "/rows"
	b, err := cloud.Open(t.Context(), address, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	putRows(t, b, 0, rows)
	return address, b
}

func putRows(t *testing.T, b cloud.Bucket, first, rows int) {
	t.Helper()
	var text bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&text, "{\"x\": %d}\n", first+i)
	}
	if err := b.Write(t.Context(), "in/rows.jsonl", bytes.NewReader(text.Bytes()), int64(text.Len())); err != nil {
		t.Fatal(err)
	}
}

// pages returns the plan of a run, by the names of its files.
func pages(t *testing.T, d *data) map[string]string {
	t.Helper()
	all := map[string]string{}
	for o, err := range d.out.List(t.Context(), jobFolder) {
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(o.Key, jobFolder+"/"+runID(d.Run)+"/"); ok && name != "job.json" {
			text, err := d.out.Get(t.Context(), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

// TestCutContinues ends attempts at a plan at many places. The last one reads what is left, and the plan is that of an attempt
// that nothing disturbed.
func TestCutContinues(t *testing.T) {
	t.Parallel()
	const rows = 2000
	address, bucket := inBucket(t, rows)
	w := &watch{}
	a := newActivities(&Settings{Data: w.options(), Background: noOnline{}})
	a.segment = 0 // the page is saved with each chunk
	begin := func(run string) *data {
		d := &data{place: place{Job: "j", Run: run, Output: job.Place{URI: address + "/" + run}}}
		d.Spec = job.Spec{ID: "j", Input: job.Place{URI: address + "/in"}, Output: d.Output}
		d.Checked.ChunkRows, d.Selected = 8, []string{"x"}
		text, err := json.Marshal(&d.jobFile)
		if err == nil {
			err = d.outputs(t.Context(), &Settings{Data: w.options()})
		}
		if err == nil {
			err = d.out.Put(t.Context(), jobKey(run), text)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	attempt := func(d *data, saves int) (*plan, error) { // ends when the page was saved as often; 0: does not
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.saves, w.saved = 0, func(_ context.Context, n int) {
			if n == saves {
				cancel()
			}
		}
		return a.cutPlan(ctx, d.place, &heart{})
	}
	quiet := begin("quiet")
	whole, err := attempt(quiet, 0)
	if err != nil || whole.Rows != rows || whole.Chunks <= pageChunks {
		t.Fatalf("%+v, %v: expected several pages", whole, err)
	}
	want := pages(t, quiet)

	disturbed := begin("disturbed")
	for _, saves := range []int{1, 5, pageChunks - 4, 2, 7} {
		if p, err := attempt(disturbed, saves); status.CodeOf(err) != status.Cancelled {
			t.Fatalf("an attempt that was ended: %+v, %v", p, err)
		}
	}
	got, err := attempt(disturbed, 0)
	if err != nil || *got != *whole {
		t.Errorf("%+v, %v, want %+v", got, err, whole)
	}
	if w.from() == 0 {
		t.Error("the last attempt began at the first row")
	}
	if d := cmp.Diff(want, pages(t, disturbed)); d != "" {
		t.Errorf("the plan (-want +got):\n%s", d)
	}

	changed := begin("changed")
	if _, err := attempt(changed, pageChunks+9); status.CodeOf(err) != status.Cancelled {
		t.Fatal(err)
	}
	putRows(t, bucket, 5, 500) // one page
	if got, err = attempt(changed, 0); err != nil || got.Rows != 500 || w.from() != 0 {
		t.Errorf("another dataset: %+v, %v, read from %d on", got, err, w.from())
	}
	fresh := begin("fresh")
	if _, err = attempt(fresh, 0); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pages(t, fresh), pages(t, changed)); d != "" {
		t.Errorf("the plan of another dataset (-want +got):\n%s", d)
	}

	damaged := begin("damaged")
	if err = damaged.out.Put(t.Context(), cutKey("damaged"), []byte("[{")); err != nil {
		t.Fatal(err)
	}
	if got, err = attempt(damaged, 0); err != nil || got.Rows != 500 {
		t.Errorf("a damaged page: %+v, %v", got, err)
	}
}

// TestCutOfStoppedWorker stops a worker while it makes the plan. The next one continues, and the results are complete.
func TestCutOfStoppedWorker(t *testing.T) {
	t.Parallel()
	const rows = 4000
	address, _ := inBucket(t, rows)
	middle := make(chan struct{})
	w := &watch{saved: func(ctx context.Context, n int) {
		if n == 100 {
			close(middle)
			<-ctx.Done()
		}
	}}
	r := newRig(t)
	r.data, r.segment = w.options(), time.Nanosecond
	r.service = New(r.settings())
	r.work()
	r.submit(job.Spec{ID: "cut", Input: job.Place{URI: address + "/in"}, Output: job.Place{URI: address + "/out"}, ChunkRows: 10})
	<-middle
	w.mu.Lock()
	before := len(w.reads)
	w.mu.Unlock()
	r.stop()
	r.segment = 0
	r.work()
	if st := r.finished("cut"); st.State != job.Completed || st.Rows.Done != rows || st.Chunks != rows/10 {
		t.Errorf("%+v", st)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if after := w.reads[before:]; len(after) == 0 || after[0] == 0 {
		t.Errorf("the next attempt began to read at %v", after[:min(len(after), 1)])
	}
}
