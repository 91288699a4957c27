//go:build cgo

package tutti_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/steps"
)

// deviceCopy is a backend whose models copy INPUTn to OUTPUTn at their GPU, by its stream.
func deviceCopy() backends.Factory {
	return backends.Factory{
		Name: "devicecopy",
		New: func(o backends.Options) (backends.Backend, error) {
			return backends.Loader(func(_ context.Context, s backends.Settings) (backends.Model, error) {
				sig := config.ModelOf(config.SignatureOf(s.Config))
				sig.Model, sig.Version = s.Model, s.Version
				return &deviceModel{Ports: backends.Ports{Sig: sig}, places: o.Places}, nil
			}), nil
		},
	}
}

type deviceModel struct {
	backends.Ports
	places *tensor.Places
}

func (m *deviceModel) Places() []tensor.Place { return m.places.Devices() }

func (m *deviceModel) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	s, err := m.places.Device(at).NewStream(m.Sig.Model)
	return &deviceInstance{stream: s}, err
}

type deviceInstance struct{ stream tensor.Stream }

func (i *deviceInstance) Stream() tensor.Stream { return i.stream }
func (i *deviceInstance) Close() error          { return i.stream.Close() }

func (i *deviceInstance) Execute(_ context.Context, b *backends.Batch) error {
	for port := range b.In {
		in := &b.In[port]
		switch {
		case !in.Present():
			continue
		case in.DType == tensor.Bytes:
			b.SetOutput(port, in.Retain())
			continue
		case in.Buf.Place() != i.stream.Place():
			return fmt.Errorf("input %d is at %s", port, in.Buf.Place())
		}
		out, err := tensor.New(i.stream, in.DType, in.Shape)
		if err != nil {
			return err
		}
		if err := i.stream.Copy(out.Buf, out.Off, in.Buf, in.Off, in.Len); err != nil {
			out.Release()
			return err
		}
		b.SetOutput(port, out)
	}
	return i.respond(b)
}

// respond sends what a decoupled model has computed three times, each time from memory of its own.
func (i *deviceInstance) respond(b *backends.Batch) error {
	if b.Responses == nil {
		return nil
	}
	defer tensor.ReleaseAll(b.Out)
	for n := range 3 {
		var out []tensor.Tensor
		for port := range b.Out {
			t, err := tensor.New(i.stream, b.Out[port].DType, b.Out[port].Shape)
			if err != nil {
				return err
			}
			if err := i.stream.Copy(t.Buf, t.Off, b.Out[port].Buf, b.Out[port].Off, t.Len); err != nil {
				return err
			}
			t.Buf.SetReady(i.stream.Record())
			out = append(out, t)
		}
		if err := b.Send(0, out, n == 2); err != nil {
			return err
		}
	}
	return nil
}

// regionModels are the models of these tests: at GPU 0, at GPU 1, on the host, of strings, decoupled, of sequences, and an ensemble over
// all places.
func regionModels(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	pair := func(n int, d string) string {
		return fmt.Sprintf("input [ { name: \"INPUT%d\" data_type: %s dims: [ -1 ] } ]\noutput [ { name: \"OUTPUT%d\" data_type: %s dims: [ -1 ] } ]\n", n, d, n, d)
	}
	numbers := pair(0, "TYPE_INT32") + pair(1, "TYPE_INT32")
	gpu := func(n int) string {
		return fmt.Sprintf("backend: \"devicecopy\"\nmax_batch_size: 8\ninstance_group [ { kind: KIND_GPU gpus: [ %d ] } ]\n", n)
	}
	step := func(model, in, out string) string {
		return fmt.Sprintf("{ model_name: %q model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }", model, in, out)
	}
	for name, text := range map[string]string{
		"gpu0":      gpu(0) + numbers,
		"gpu1":      gpu(1) + numbers,
		"one0":      gpu(0) + pair(0, "TYPE_INT32"),
		"onehost":   "backend: \"identity\"\nmax_batch_size: 8\n" + pair(0, "TYPE_INT32"),
		"host":      "backend: \"identity\"\nmax_batch_size: 8\n" + numbers,
		"text":      "backend: \"identity\"\n" + pair(0, "TYPE_STRING"),
		"mixed":     gpu(0) + pair(0, "TYPE_STRING") + pair(1, "TYPE_INT32"),
		"decoupled": gpu(0) + pair(0, "TYPE_INT32") + "model_transaction_policy { decoupled: true }\n",
		"sequence":  gpu(0) + numbers + "sequence_batching { max_sequence_idle_microseconds: 60000000 }\n",
		"cached":    gpu(0) + pair(0, "TYPE_INT32") + "response_cache { enable: true }\n",
		"chain": "platform: \"ensemble\"\nmax_batch_size: 8\n" + pair(0, "TYPE_INT32") +
			"ensemble_scheduling { step [ " + step("one0", "INPUT0", "a") + ", " + step("onehost", "a", "b") + ", " + step("one0", "b", "OUTPUT0") + " ] }",
	} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// serveRegions runs a server on the checking driver, and returns its doors. When the test ends, the driver must have found no fault, and
// the server must have released everything.
func serveRegions(t *testing.T, args ...string) (*tutti.Server, map[string]regionDoor) {
	t.Helper()
	library := cudatest.Library(t)
	t.Cleanup(func() { cudatest.Check(t) }) // after the server's end
	var output bytes.Buffer
	s, err := tutti.Open(t.Context(), tutti.Settings{
		Args: append([]string{
			"--model-repository=" + regionModels(t), "--cuda-driver=" + library, "--allow-client-shm=true", "--cache-config=local,size=1048576",
			"--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0", "--metrics-port=0",
		}, args...),
		Components: tutti.Components{
			Backends: func(*steps.Registry) []backends.Factory {
				return []backends.Factory{identity.NewFactory(), deviceCopy()}
			},
		},
		Stderr: &output,
	})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s.Start())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // a server that stops waits for its clients to leave
		if err := s.Close(context.Background()); err != nil && os.Getenv(lostAlone) == "" {
			t.Error(err)
		}
		if text := output.String(); strings.Contains(text, "tensors were not released") {
			t.Errorf("something was kept:\n%s", text)
		}
	})
	for _, m := range s.Models() {
		if m.Err != nil {
			t.Fatal(m.Name, m.Err)
		}
	}
	return s, map[string]regionDoor{
		"http": httpDoor{tb: t, url: "http://" + s.HTTPAddress()}, "grpc": newGRPCDoor(t, s.GRPCAddress(), false), "stream": newGRPCDoor(t, s.GRPCAddress(), true),
	}
}

var copyLine = regexp.MustCompile(`(?m)^ensemble_copies_total\{direction="[^"]*",from="([^"]*)",model="([^"]*)",reason="([^"]*)",tensor="([^"]*)",to="([^"]*)",version="1"\} (\d+)$`)

// copiesOf returns the server's copies, sorted: model, tensor, from, to, reason, number.
func copiesOf(t *testing.T, s *tutti.Server) (list []string) {
	t.Helper()
	b, _, err := httpDoor{tb: t, url: "http://" + s.MetricsAddress()}.call("GET", "/metrics", nil)
	must(t, err)
	for _, m := range copyLine.FindAllStringSubmatch(string(b), -1) {
		list = append(list, strings.Join([]string{m[2], m[4], m[1], m[5], m[3], m[6]}, " "))
	}
	slices.Sort(list)
	return list
}
