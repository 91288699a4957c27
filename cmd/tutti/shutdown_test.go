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

// TestShutdownWithQueue checks that a server responds to all queued requests before it ends: many for a model with
// one instance, and some for a batch that never fills.
func TestShutdownWithQueue(t *testing.T) {
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
				t.Errorf("the response to request %d is %v, %v", i, got, err)
			}
		})
	}
	// All requests for the model patient are queued. The others are queued, complete, or the one that executes. Two
	// equal readings show that no other request is still to arrive.
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

// valueOf reads a metric of version 1 of a model.
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
