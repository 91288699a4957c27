package main

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/steps"
)

// exampleClients is the number of concurrent clients of one server, so that requests share batches.
const exampleClients = 8

// TestExamples checks the responses to every request of every example's expected.json, over each protocol and
// encoding, several at a time.
func TestExamples(t *testing.T) {
	t.Parallel()
	testExamples(t, components(), nil)
}

// TestExamplesAtDevices runs TestExamples with every model on one of two simulated devices.
func TestExamplesAtDevices(t *testing.T) {
	t.Parallel()
	cudatest.NotAtDevices(t, "the devices are simulated; TestExamplesOnCheckingDriver sends the same requests")
	m := simtest.Simulated(t, 2)
	t.Cleanup(func() { // after the server has ended
		// The device of a request is random, and text tensors stay on the host.
		var up, down int64
		for _, d := range m.Devices() {
			s := d.(*simdev.Device).Stats()
			up, down = up+s.Up.Count, down+s.Down.Count
			if s.Kernels == 0 || s.Peer.Count > 0 {
				t.Errorf("%s has copied %+v", d.Place(), s)
			}
		}
		if up == 0 || down == 0 {
			t.Errorf("%d copies up and %d down", up, down)
		}
	})
	c := components()
	host := c.Backends
	c.Backends = func(registry *steps.Registry) []backends.Factory {
		list := host(registry)
		for i := range list {
			if list[i].Name != sim.Name {
				list[i] = simtest.Around(list[i], m)
			}
		}
		return list
	}
	testExamples(t, c, nil)
}

// testExamples sends all examples to a server with the flags. Then check, which may be nil, gets the server's metrics.
func testExamples(t *testing.T, with tutti.Components, check func(t *testing.T, metrics string), flags ...string) {
	t.Helper()
	args := append([]string{"--backend-config", "onnxruntime,library-path=" + requireRuntime(t)}, flags...)
	var examples []cli.Example
	roots, needs := backendRoots(t)
	args = append(args, needs...)
	maps.Copy(roots, exampleRoots(t))
	for name, root := range roots {
		list, err := cli.ReadExamples(root)
		if err != nil {
			t.Fatal(err)
		}
		least := 5
		if strings.HasPrefix(name, backendRoot) {
			least = 2 // fewer requests name a single model
		}
		if len(list) < least {
			t.Errorf("the example %s has %d requests", name, len(list))
		}
		args, examples = append(args, "--model-repository="+root), append(examples, list...)
	}
	a := serveWith(t, with, args...)
	if check != nil {
		t.Cleanup(func() { check(t, metricsOf(t, a)) })
	}
	for _, tt := range []struct {
		name string
		c    client.Client
	}{
		{"http json", client.NewHTTP("http://"+a.http, &client.HTTPOptions{JSON: true})},
		{"http binary", client.NewHTTP("http://"+a.http, nil)},
		{"grpc", dialGRPC(t, a.grpc)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { _ = tt.c.Close() })
			sendAll(t, tt.c, tt.name == "http json", examples)
		})
	}
}

func dialGRPC(tb testing.TB, address string) *client.GRPC {
	tb.Helper()
	c, err := client.NewGRPC(address, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// sendAll sends every example from each client. Each client starts with a different example.
func sendAll(t *testing.T, c client.Client, json bool, examples []cli.Example) {
	t.Helper()
	var wg sync.WaitGroup
	for k := range exampleClients {
		wg.Go(func() {
			for i := range examples {
				if err := sendExample(t, c, json, &examples[(i+k*3)%len(examples)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func sendExample(t *testing.T, c client.Client, json bool, e *cli.Example) error {
	t.Helper()
	if json && !writable(e) {
		return nil // an image is not UTF-8
	}
	resp, err := c.Infer(t.Context(), &e.Request)
	if err != nil {
		return fmt.Errorf("example '%s': %w", e.Name, err)
	}
	if resp.ID != e.Request.ID || resp.Model != e.Request.Model || resp.Version != "1" {
		return fmt.Errorf("example '%s': the response is from '%s' version '%s' to '%s'", e.Name, resp.Model, resp.Version, resp.ID)
	}
	return e.Check(resp)
}

// writable reports whether a request's inputs can be written as JSON.
func writable(e *cli.Example) bool {
	for i := range e.Request.Inputs {
		if _, err := e.Request.Inputs[i].MarshalJSON(); err != nil {
			return false
		}
	}
	return true
}
