package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// TestEndWithQueue ends a server for whose only instance a thousand requests wait, and
// others for a batch that is never full: all are answered.
func TestEndWithQueue(t *testing.T) {
	t.Parallel()
	n := 1000
	if testing.Short() {
		n = 200
	}
	const ports = "input { name: \"INPUT0\" data_type: TYPE_INT32 dims: 1 }\noutput { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: 1 }\n"
	root := t.TempDir()
	for name, text := range map[string]string{
		"line":    "backend: \"identity\" instance_group { count: 1 } parameters { key: \"execute_delay_ms\" value { string_value: \"1\" } }\n" + ports,
		"patient": "backend: \"identity\" max_batch_size: 4096 dynamic_batching { max_queue_delay_microseconds: 3600000000 }\n" + ports,
	} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	a, _ := serveUntil(ctx, t, components(), "--model-repository="+root)
	h := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = h.Close() })
	g := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = g.Close() })
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			req := &client.Request{Model: "line", Inputs: []client.Tensor{client.Of("INPUT0", []int64{1}, int32(i))}}
			if i%10 == 0 {
				req = &client.Request{Model: "patient", Inputs: []client.Tensor{client.Of("INPUT0", []int64{1, 1}, int32(i))}}
			}
			c := client.Client(h)
			if i%2 == 0 {
				c = g
			}
			resp, err := c.Infer(context.Background(), req)
			if err != nil {
				t.Errorf("request %d of %s: %v", i, req.Model, err)
				return
			}
			if got, err := client.Values[int32](resp.Output("OUTPUT0")); err != nil || len(got) != 1 || got[0] != int32(i) {
				t.Errorf("request %d is answered %v, %v", i, got, err)
			}
		})
	}
	// All requests for the patient model wait. So do the others, or have been answered, but for the one under way: that
	// two looks agree tells it from one that is still to come.
	for seen := 0; seen < 2; {
		text := metricsOf(t, a)
		line := valueOf(t, text, "nv_inference_pending_request_count", "line") + valueOf(t, text, "nv_inference_request_success", "line")
		if valueOf(t, text, "nv_inference_pending_request_count", "patient") == n/10 && line >= n-n/10-1 {
			seen++
			continue
		}
		seen = 0
		runtime.Gosched()
	}
	stop()
	wg.Wait()
}

// valueOf reads a metric of a model's first version.
func valueOf(t *testing.T, text, name, model string) int {
	t.Helper()
	_, rest, ok := strings.Cut(text, fmt.Sprintf("\n%s{model=%q,version=\"1\"} ", name, model))
	if !ok {
		return 0
	}
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
