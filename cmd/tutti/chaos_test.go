package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/client"
)

// allowed matches the errors that configurations, clients and reloads may cause.
var allowed = regexp.MustCompile(`Exceeds maximum queue size|Request timeout expired|(?i)cancell?ed|deadline|context|` +
	`unknown model|not ready|not found|no version is available|unloading|unavailable|no available versions`)

// visitor is one client.
type visitor struct {
	*chaos
	t    *testing.T
	rng  *rand.Rand
	http *client.HTTP
	grpc *client.GRPC
	url  string
}

func (a *visitor) send(n int) {
	for i := range n {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if !a.calm && a.rng.IntN(3) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), time.Duration(a.rng.IntN(4000))*time.Microsecond)
		}
		if a.rng.IntN(6) == 0 {
			a.stream(ctx)
		} else {
			a.plain(ctx, i)
		}
		if err := ctx.Err(); err != nil && a.calm {
			a.t.Errorf("no response: %v", err)
		}
		cancel()
	}
}

func (a *visitor) plain(ctx context.Context, i int) {
	model := one(a.rng, a.models...)
	a.sent[model].Add(1)
	rows, n := 1, 1+a.rng.IntN(6)
	shape := []int64{int64(n)}
	if b := a.batches[model]; b > 0 {
		rows = 1 + a.rng.IntN(b)
		shape = []int64{int64(rows), int64(n)}
	}
	data := make([]float32, rows*n)
	for k := range data {
		data[k] = one(a.rng, float32(a.rng.IntN(1<<20)), float32(k))
	}
	got, err := a.infer(ctx, model, i, shape, data)
	switch {
	case err == nil && !slices.Equal(got, data):
		a.t.Errorf("model %s responds with %v, want %v", model, got, data)
	case err == nil:
		a.good[model].Add(1)
	default:
		a.bad[model].Add(1)
		if ctx.Err() == nil && !allowed.MatchString(err.Error()) {
			a.t.Errorf("model %s: %v", model, err)
		}
	}
}

// infer sends a request with a random protocol. JSON requests have parameters.
func (a *visitor) infer(ctx context.Context, model string, i int, shape []int64, data []float32) ([]float32, error) {
	in := client.Of("INPUT0", shape, data...)
	req := &client.Request{Model: model, ID: strconv.Itoa(i), Inputs: []client.Tensor{in}}
	var resp *client.Response
	var err error
	switch a.rng.IntN(3) {
	case 0:
		resp, err = a.http.Infer(ctx, req)
	case 1:
		resp, err = a.grpc.Infer(ctx, req)
	default:
		return a.json(ctx, model, shape, data)
	}
	if err != nil {
		return nil, err
	}
	return client.Values[float32](resp.Output("OUTPUT0"))
}

func (a *visitor) json(ctx context.Context, model string, shape []int64, data []float32) ([]float32, error) {
	body, err := json.Marshal(map[string]any{
		"parameters": map[string]any{"priority": a.rng.IntN(5), "timeout": one(a.rng, 0, 1, 500, 1<<40)},
		"inputs":     []any{map[string]any{"name": "INPUT0", "datatype": "FP32", "shape": shape, "data": data}},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v2/models/"+model+"/infer", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := chaosHTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(string(text))
	}
	var out struct{ Outputs []struct{ Data []float32 } }
	if err := json.Unmarshal(text, &out); err != nil || len(out.Outputs) != 1 {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	return out.Outputs[0].Data, nil
}

var chaosHTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func (a *visitor) stream(ctx context.Context) {
	model := one(a.rng, a.streams...)
	a.sent[model].Add(1)
	n := int32(a.rng.IntN(14))
	want := int(n)
	if model == "squares" || model == "outer" {
		want = int(n * n)
	}
	got, most := 0, want
	if !a.calm && a.rng.IntN(4) == 0 {
		most = a.rng.IntN(3)
	}
	req := &client.Request{Model: model, Inputs: []client.Tensor{client.Of("IN", []int64{1}, n)}}
	err := a.grpc.Stream(ctx, req, func(r *client.Response) error {
		if out := r.Output("OUT"); out != nil {
			v, err := client.Values[int32](out)
			if err != nil || len(v) != 1 || v[0] != n {
				a.t.Errorf("model %s responds with %v, want %d: %v", model, v, n, err)
			}
			got++
		}
		if got > most {
			return errGone
		}
		return nil
	})
	switch {
	case err == nil && got != want:
		a.t.Errorf("model %s responds %d times, want %d", model, got, want)
	case err == nil:
		a.good[model].Add(1)
	default:
		a.bad[model].Add(1)
		if ctx.Err() == nil && !errors.Is(err, errGone) && !allowed.MatchString(err.Error()) {
			a.t.Errorf("model %s: %v", model, err)
		}
	}
}

// errGone is the error of a client that disconnects in the middle of a stream.
var errGone = errors.New("gone")

// chaosSeed is the first seed. For example, go test -run TestChaos -args -chaos-seed 7 starts with 7.
var chaosSeed = flag.Uint64("chaos-seed", 1, "first `seed` of TestChaos")

// TestChaos checks that servers with random configurations respond correctly to many clients at the same time and
// leave no goroutine behind. It is not parallel, because it counts goroutines.
func TestChaos(t *testing.T) {
	seeds, requests := uint64(2), 12
	if !testing.Short() {
		seeds, requests = 10, 100
	}
	ignore := goleak.IgnoreCurrent()
	for i := range seeds {
		seed := *chaosSeed + i
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			c := newChaos(t, seed, seed%2 == 0)
			t.Cleanup(func() { c.print(t) })
			args := []string{
				"--model-repository=" + c.root, "--cache-config=local,size=65536",
				"--model-control-mode=explicit", "--load-model=*",
			}
			if c.rng.IntN(2) == 0 {
				args = append(args, "--rate-limit=execution_count")
			}
			c.run(t, serve(t, args...), requests)
		})
	}
	chaosHTTP.CloseIdleConnections()
	goleak.VerifyNone(t, ignore)
}

func (c *chaos) run(t *testing.T, addr addresses, requests int) {
	t.Helper()
	var wg sync.WaitGroup
	over := make(chan struct{})
	h := client.NewHTTP("http://"+addr.http, nil)
	defer func() { _ = h.Close() }()
	g := dialGRPC(t, addr.grpc)
	defer func() { _ = g.Close() }()
	for k := range 64 {
		a := &visitor{chaos: c, t: t, rng: rand.New(rand.NewPCG(c.rng.Uint64(), uint64(k))), http: h, grpc: g, url: "http://" + addr.http} //nolint:gosec // a test's choices
		wg.Go(func() { a.send(requests) })
	}
	var reloads sync.WaitGroup
	if !c.calm {
		reloads.Go(func() { c.reload(t, h, over) })
	}
	wg.Wait()
	close(over)
	reloads.Wait()
	settled(t, addr)
	if c.calm {
		c.counted(t, h)
	}
}

func (c *chaos) reload(t *testing.T, h *client.HTTP, over chan struct{}) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a test's choices
	all := append(slices.Clone(c.models), c.streams...)
	for {
		select {
		case <-over:
			return
		default:
		}
		model := one(rng, all...)
		if rng.IntN(2) == 0 {
			if err := h.Unload(context.Background(), model, false); err != nil {
				t.Errorf("unload: %v", err)
			}
		}
		if err := h.Load(context.Background(), model); err != nil {
			t.Errorf("load: %v", err)
		}
	}
}

// settled checks that no request is left in a queue.
func settled(t *testing.T, addr addresses) {
	t.Helper()
	pending := regexp.MustCompile(`(?m)^nv_inference_pending_request_count.* [^0].*$|^ensemble_\w*(queue_depth|in_use|inflight_bytes)\w* [^0].*$`)
	for began := time.Now(); ; {
		left := pending.FindString(metricsOf(t, addr))
		if left == "" {
			return
		}
		if time.Since(began) > time.Minute {
			t.Errorf("something is left: %s", left)
			return
		}
	}
}

// counted compares the statistics with the number of requests sent.
func (c *chaos) counted(t *testing.T, h *client.HTTP) {
	t.Helper()
	for _, m := range append(slices.Clone(c.models), c.streams...) {
		list, err := h.Statistics(t.Context(), m)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v %v", list, err)
		}
		s := &list[0]
		direct := c.good[m].Load() + c.bad[m].Load()
		total := int64(s.Inference.Success.Count + s.Inference.Fail.Count)
		if strings.HasPrefix(m, "model") || strings.HasPrefix(m, "square") || m == "short" || m == "long" {
			if total < direct {
				t.Errorf("model %s counts %d requests, at least %d were sent", m, total, direct)
			}
		} else if total != direct {
			t.Errorf("model %s counts %d and %d requests, sent %d and %d", m, s.Inference.Success.Count, s.Inference.Fail.Count, c.good[m].Load(), c.bad[m].Load())
		}
		if s.ExecutionCount > s.InferenceCount+s.Inference.Fail.Count {
			t.Errorf("model %s has %d executions of %d inferences", m, s.ExecutionCount, s.InferenceCount)
		}
	}
}
