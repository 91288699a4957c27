package durable

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
	"github.com/tutti-server/tutti/internal/dataset"
)

// refusing is a bucket whose writes can be refused, as with expired credentials.
type refusing struct {
	cloud.Bucket
	refuse *atomic.Bool
}

func (b refusing) Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if b.refuse.Load() {
		return status.Errorf(status.Unavailable, "writing %s: status 403 Forbidden: the credentials have expired", key)
	}
	return b.Bucket.Write(ctx, key, body, size)
}

// TestBucket runs a job from and to a bucket that refuses writes for a while. It waits, shows why, and goes on by itself.
func TestBucket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := "s3://" + cloudtest.S3(t, "rows") + "/rows"
	env := func(string) string { return "" }
	var refuse atomic.Bool
	r.data = &dataset.Options{OpenBucket: func(ctx context.Context, address string) (cloud.Bucket, error) {
		b, err := cloud.Open(ctx, address, &cloud.Options{Env: env})
		return refusing{b, &refuse}, err
	}}
	r.service = New(r.settings())
	r.work()
	bucket, err := cloud.Open(t.Context(), address, &cloud.Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	var b bytes.Buffer
	for i, v := range numbers(1, rows) {
		fmt.Fprintf(&b, "{\"x\": %g, \"id\": \"row %d\"}\n", v, i)
	}
	if err = bucket.Write(t.Context(), "in/rows.jsonl", bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		t.Fatal(err)
	}
	r.submit(job.Spec{ID: "bucket", Input: job.Place{URI: address + "/in"}, Output: job.Place{URI: address + "/out"}, ChunkRows: 10})
	r.await("bucket", "running", func(st *job.Status) bool { return st.Finished > 2 })
	refuse.Store(true)
	st := r.await("bucket", "waiting", func(st *job.Status) bool { return st.State == job.Waiting })
	if !strings.Contains(st.Reason, "the credentials have expired") {
		t.Errorf("%+v", st)
	}
	refuse.Store(false)
	if st = r.finished("bucket"); st.State != job.Completed || st.Rows.Done != rows || st.Manifest != address+"/out/_manifest.json" {
		t.Errorf("%+v", st)
	}
	m, err := r.service.Result(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	list, err := bucket.List(t.Context(), "out/"+partPrefix)
	if err != nil || len(list) != len(m.Parts) || m.Rows.Done != rows {
		t.Errorf("%d objects for %d parts, %v", len(list), len(m.Parts), err)
	}
}
