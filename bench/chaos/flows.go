package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/client"
)

// clients are the connections of the traffic.
type clients struct {
	http   *client.HTTP
	grpc   []*client.GRPC
	web    *http.Client // for JSON
	url    string
	shared *region
}

// dial opens clients of a server.
func dial(v *server) (*clients, error) {
	c := &clients{url: "http://" + v.HTTP, web: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	c.http = client.NewHTTP(c.url, nil)
	for range 4 {
		g, err := client.NewGRPC(v.GRPC, nil)
		if err != nil {
			return nil, err
		}
		c.grpc = append(c.grpc, g)
	}
	return c, nil
}

func (c *clients) close() error {
	c.web.CloseIdleConnections()
	errs := []error{c.http.Close()}
	for _, g := range c.grpc {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// call sends one request and returns its response.
type call func(ctx context.Context, c *clients, r *rand.Rand, req *client.Request) (*client.Response, error)

// ways are the protocols of single requests.
var ways = map[string]call{
	"http": func(ctx context.Context, c *clients, _ *rand.Rand, req *client.Request) (*client.Response, error) {
		return c.http.Infer(ctx, req)
	},
	"grpc": func(ctx context.Context, c *clients, r *rand.Rand, req *client.Request) (*client.Response, error) {
		return c.grpc[r.IntN(len(c.grpc))].Infer(ctx, req)
	},
	"json":   sendJSON,
	"stream": sendStream,
}

// sendJSON sends a request as JSON, without a library of ours for HTTP.
func sendJSON(ctx context.Context, c *clients, _ *rand.Rand, req *client.Request) (*client.Response, error) {
	body, err := json.Marshal(map[string]any{"inputs": req.Inputs})
	if err != nil {
		return nil, err
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v2/models/"+req.Model+"/infer", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.web.Do(hr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &client.Error{Status: resp.Status, Text: string(text)}
	}
	out := &client.Response{}
	var parsed struct {
		Outputs []client.Tensor `json:"outputs"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, differs("the response is not JSON of KServe: %w", err)
	}
	out.Outputs = parsed.Outputs
	return out, nil
}

// sendStream sends a request on a gRPC stream of its own.
func sendStream(ctx context.Context, c *clients, r *rand.Rand, req *client.Request) (out *client.Response, err error) {
	n := 0
	err = c.grpc[r.IntN(len(c.grpc))].Stream(ctx, req, func(resp *client.Response) error {
		if len(resp.Outputs) > 0 {
			out = resp
			n++
		}
		return nil
	})
	if err == nil && n != 1 {
		err = differs("%d responses on a stream, expected 1", n)
	}
	return out, err
}

// flow is a kind of requests.
type flow struct {
	name   string
	weight int
	// send sends what makes up one use of the flow. The error is a *wrongError if a response was not right.
	send func(ctx context.Context, c *clients, r *rand.Rand) error
}

// flows returns the kinds of requests that a repository can serve.
func (r *repository) flows() []flow {
	var all []flow
	weights := map[string]int{"parallel": 6, "image": 2, "text": 2, "python_chain": 3}
	for _, name := range []string{"parallel", "image", "text", "python_chain"} {
		if list := r.examples[name]; list != nil {
			for _, way := range []string{"http", "grpc", "stream", "json"} {
				if way == "json" && name == "image" {
					continue // pictures are not UTF-8
				}
				all = append(all, flow{name + " " + way, weights[name], example(list, ways[way])})
			}
		}
	}
	for _, way := range []string{"http", "grpc", "json", "stream"} {
		all = append(all, flow{"plain " + way, 4, same("plain", 1<<30, ways[way])}, flow{"cached " + way, 3, same("cached", 64, ways[way])})
		if r.bucket != "" {
			all = append(all, flow{far + " " + way, 1, same(far, 1<<30, ways[way])})
		}
	}
	return append(all,
		flow{"plain shm", 8, func(ctx context.Context, c *clients, r *rand.Rand) error { return c.shared.send(ctx, c, r) }},
		flow{"squares stream", 4, decoupled("squares", func(n, _ int32) int32 { return n })},
		flow{"count stream", 3, decoupled("count", func(_, i int32) int32 { return i })},
		flow{"sum http", 2, sequence(ways["http"])},
		flow{"sum grpc", 2, sequence(ways["grpc"])},
		flow{"sum stream", 2, sequenceStream},
	)
}

// example sends one of the stored examples.
func example(list []stored, send call) func(context.Context, *clients, *rand.Rand) error {
	return func(ctx context.Context, c *clients, r *rand.Rand) error {
		e := &list[r.IntN(len(list))]
		req := e.request // clients change it
		resp, err := send(ctx, c, r, &req)
		if err != nil {
			return err
		}
		return e.check(resp)
	}
}

// numbers returns a request of a model that returns its input. values is how many different requests there are.
func numbers(model string, values int, r *rand.Rand) (*client.Request, []float32) {
	v := r.IntN(values)
	data := make([]float32, 1+v%300)
	for i := range data {
		data[i] = float32(v%(1<<20) + i)
	}
	return &client.Request{Model: model, Inputs: []client.Tensor{client.Of("INPUT0", []int64{1, int64(len(data))}, data...)}}, data
}

// same sends numbers to a model that returns its input.
func same(model string, values int, send call) func(context.Context, *clients, *rand.Rand) error {
	return func(ctx context.Context, c *clients, r *rand.Rand) error {
		req, want := numbers(model, values, r)
		resp, err := send(ctx, c, r, req)
		if err != nil {
			return err
		}
		got, err := client.Values[float32](resp.Output("OUTPUT0"))
		if err != nil || !slices.Equal(got, want) {
			return differs("%s responds with %v, expected %v: %w", model, got, want, err)
		}
		return nil
	}
}

// decoupled sends a number to a model that responds that many times.
func decoupled(model string, value func(n, i int32) int32) func(context.Context, *clients, *rand.Rand) error {
	return func(ctx context.Context, c *clients, r *rand.Rand) error {
		n, i := int32(r.IntN(20)), int32(0)
		req := &client.Request{Model: model, Inputs: []client.Tensor{client.Of("IN", []int64{1}, n)}}
		err := c.grpc[r.IntN(len(c.grpc))].Stream(ctx, req, func(resp *client.Response) error {
			out := resp.Output("OUT")
			if out == nil {
				return nil
			}
			got, err := client.Values[int32](out)
			if err != nil || len(got) != 1 || got[0] != value(n, i) {
				return differs("%s responds to %d with %v as response %d: %w", model, n, got, i, err)
			}
			i++
			return nil
		})
		if err == nil && i != n {
			err = differs("%s responds %d times, expected %d", model, i, n)
		}
		return err
	}
}

// step returns request i of a sequence of n.
func step(id uint64, i, n int, v int32) *client.Request {
	return &client.Request{
		Model: "sum", Sequence: &client.Sequence{ID: id, Start: i == 0, End: i == n-1}, Inputs: []client.Tensor{client.Of("INPUT", []int64{1, 1}, v)},
	}
}

func checkSum(resp *client.Response, want int32) error {
	got, err := client.Values[int32](resp.Output("OUTPUT"))
	if err != nil || len(got) != 1 || got[0] != want {
		return differs("a sequence sums to %v, expected %d: %w", got, want, err)
	}
	return nil
}

// sequence sends a sequence, one request after another. An error ends it.
func sequence(send call) func(context.Context, *clients, *rand.Rand) error {
	return func(ctx context.Context, c *clients, r *rand.Rand) error {
		id, sum, n := r.Uint64()>>1+1, int32(0), 2+r.IntN(4)
		for i := range n {
			v := int32(r.IntN(100))
			resp, err := send(ctx, c, r, step(id, i, n, v))
			if err != nil {
				return err
			}
			sum += v
			if err := checkSum(resp, sum); err != nil {
				return err
			}
		}
		return nil
	}
}

// sequenceStream sends a sequence on one gRPC stream.
func sequenceStream(ctx context.Context, c *clients, r *rand.Rand) error {
	s, err := c.grpc[r.IntN(len(c.grpc))].OpenStream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return sequence(func(_ context.Context, _ *clients, _ *rand.Rand, req *client.Request) (*client.Response, error) {
		if err := s.Send(req); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return s.Recv()
	})(ctx, c, r)
}

// ownPrefix begins the names of this program's shared memory.
const ownPrefix = "tutti-chaos-"

const (
	slotSize = 4096
	slots    = 1024
	half     = slotSize / 2 // the input is in the first half of a slot, the output in the second one
)

// region is system shared memory with a slot for each request under way.
type region struct {
	mem  *client.Shared
	mu   sync.Mutex
	free []int // guarded by mu
}

// openRegion creates the memory and registers it.
func openRegion(ctx context.Context, c *clients, name string) error {
	mem, err := client.CreateShared("/"+ownPrefix+name, slots*slotSize)
	if err != nil {
		return err
	}
	s := &region{mem: mem}
	for i := range slots {
		s.free = append(s.free, i)
	}
	c.shared = s
	return s.register(ctx, c)
}

// regionName is the name by which requests refer to it.
const regionName = "chaos"

func (s *region) register(ctx context.Context, c *clients) error {
	return c.http.RegisterSystem(ctx, regionName, s.mem.Key, 0, uint64(len(s.mem.Bytes)))
}

func (s *region) close(ctx context.Context, c *clients) error {
	return errors.Join(c.http.UnregisterSystem(ctx, regionName), s.mem.Close())
}

// send sends numbers in shared memory. The slot of a request that the client gave up is used again last: the server may still write to it.
func (s *region) send(ctx context.Context, c *clients, r *rand.Rand) error {
	s.mu.Lock()
	slot := s.free[0]
	s.free = s.free[1:]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, slot)
	}()
	req, want := numbers("plain", 1<<30, r)
	in, at := &req.Inputs[0], uint64(slot*slotSize) //nolint:gosec // a slot is small
	size := uint64(len(in.Data))
	clear(s.mem.Bytes[at : at+slotSize])
	copy(s.mem.Bytes[at:], in.Data)
	in.Region = &client.Region{Name: regionName, Offset: at, Size: size}
	in.Data = nil
	req.Outputs = []string{"OUTPUT0"}
	req.Regions = map[string]client.Region{"OUTPUT0": {Name: regionName, Offset: at + half, Size: size}}
	resp, err := ways[[]string{"http", "grpc"}[r.IntN(2)]](ctx, c, r, req)
	if err != nil {
		return err
	}
	out := resp.Output("OUTPUT0")
	if out == nil || out.Region == nil {
		return differs("a response in shared memory has no region: %+v", resp)
	}
	t, err := s.mem.Tensor(out, *out.Region)
	if err != nil {
		return differs("%w", err)
	}
	got, err := client.Values[float32](&t)
	if err != nil || !slices.Equal(got, want) {
		return differs("shared memory has %v, expected %v: %w", got, want, err)
	}
	return nil
}

func (f *flow) String() string { return fmt.Sprintf("%s (weight %d)", f.name, f.weight) }
