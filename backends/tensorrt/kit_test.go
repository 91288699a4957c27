//go:build cgo

package tensorrt_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tensorrt"
	"github.com/tutti-server/tutti/backends/tensorrt/tensorrttest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// eachVersion runs a test with both stand-in libraries. gpu may have the options of the devices.
func eachVersion(t *testing.T, f func(t *testing.T, k *kit), gpu ...cuda.Options) {
	t.Helper()
	for major := range tensorrttest.Versions {
		t.Run(strconv.Itoa(major), func(t *testing.T) {
			t.Parallel()
			f(t, newKit(t, major, append(gpu, cuda.Options{})[0], nil))
		})
	}
}

// kit is an open backend on the checking driver.
type kit struct {
	backends.Backend
	major  int
	driver *cuda.Driver
	places *tensor.Places
	pool   tensor.Allocator
	log    *logtest.Buffer
}

// newKit opens the backend with a stand-in library. At its end the test fails on what the driver and the library found.
func newKit(t *testing.T, major int, gpu cuda.Options, config map[string]string) *kit {
	t.Helper()
	library := tensorrttest.Library(t, major)
	cudatest.Require(t) // the stand-in has kernels for the checking driver only
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := tensortest.NewChecked(t, nil)
	k := &kit{major: major, driver: driver, places: tensor.NewPlaces(pool), pool: pool, log: &logtest.Buffer{}}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
		tensorrttest.Check(t, library)
	})
	devices, err := driver.Devices(gpu)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if err := k.places.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"library-path": library}
	maps.Copy(all, config)
	k.Backend, err = tensorrt.NewFactory().New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: all, Places: k.places})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// settings writes a plan, whose first line is added, to a version folder.
func (k *kit) settings(t *testing.T, plan, pbtxt string) backends.Settings {
	t.Helper()
	dir := t.TempDir()
	text := tensorrttest.Versions[k.major] + strings.ReplaceAll(plan, "\t", "") + "\nend\n"
	if err := os.WriteFile(filepath.Join(dir, "model.plan"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Name = "m"
	if len(cfg.GetInstanceGroup()) == 0 {
		cfg.InstanceGroup = []*modelconfig.ModelInstanceGroup{{Kind: modelconfig.ModelInstanceGroup_KIND_GPU, Gpus: []int32{0}}}
	}
	return backends.Settings{
		Model: "m", Version: 3, Dir: dir, ModelDir: filepath.Dir(dir), Config: cfg, Instances: 1, Alloc: k.pool,
		Log: slog.New(slog.NewTextHandler(k.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// model loads a plan. The test closes it.
func (k *kit) model(t *testing.T, plan, pbtxt string) backends.Model {
	t.Helper()
	m, err := k.Load(t.Context(), k.settings(t, plan, pbtxt))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// instance makes an instance at GPU 0 with these profiles. The test closes it.
func instance(t *testing.T, m backends.Model, profiles ...string) backends.Instance {
	t.Helper()
	x, err := newInstance(t.Context(), m, 0, profiles...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func newInstance(ctx context.Context, m backends.Model, gpu int16, profiles ...string) (backends.Instance, error) {
	g, ok := m.(backends.GroupModel)
	if !ok {
		return nil, errors.New("the model does not know groups")
	}
	return g.NewGroupInstance(ctx, tensor.Place{Kind: tensor.Device, ID: gpu}, &modelconfig.ModelInstanceGroup{Profile: profiles})
}

// execute runs a batch of values, and returns its outputs as values.
func (k *kit) execute(t *testing.T, m backends.Model, x backends.Instance, in ...backendtest.Value) ([]backendtest.Value, error) {
	t.Helper()
	b := k.batch(t, m, x, in...)
	defer free(b)
	if err := x.Execute(t.Context(), b); err != nil {
		return nil, err
	}
	var out []backendtest.Value
	for i := range b.Out {
		out = append(out, k.read(t, b.Stream, &b.Out[i]))
	}
	return out, nil
}

// batch copies values to the instance's device, shape tensors apart, and returns a batch of them.
func (k *kit) batch(t *testing.T, m backends.Model, x backends.Instance, in ...backendtest.Value) *backends.Batch {
	t.Helper()
	sig, s := m.Signature(), backends.StreamOf(x)
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(sig.Outputs)), Allocator: s, HostAllocator: k.pool, Stream: s}
	for i, v := range in {
		one := v.Tensor(t, k.pool)
		if !sig.Inputs[i].ShapeTensor && one.Present() {
			toDevice(t, s, &one)
			if sig.MaxBatch > 0 {
				b.Rows = int(v.Dims[0])
			}
		}
		b.In = append(b.In, one)
	}
	return b
}

// free releases a batch as the server does: behind the work of its stream.
func free(b *backends.Batch) {
	end := b.Stream.Record()
	for _, list := range [][]tensor.Tensor{b.In, b.Out} {
		for i := range list {
			if list[i].Present() && list[i].Buf.Place().Kind == tensor.Device {
				list[i].Buf.UsedUntil(end)
			}
		}
		tensor.ReleaseAll(list)
	}
}

func toDevice(t *testing.T, s tensor.Stream, v *tensor.Tensor) {
	t.Helper()
	b, err := s.Alloc(v.Len)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Copy(b, 0, v.Buf, 0, v.Len); err != nil {
		t.Fatal(err)
	}
	v.Buf.Release()
	v.Buf = b
}

// read copies a tensor to the host.
func (k *kit) read(t *testing.T, s tensor.Stream, v *tensor.Tensor) backendtest.Value {
	t.Helper()
	if !v.Present() || v.Buf.Place().Kind != tensor.Device {
		return backendtest.ValueOf(v)
	}
	b, err := k.pool.Alloc(v.Len)
	if err != nil {
		t.Fatal(err)
	}
	host := *v
	host.Buf, host.Off = b, 0
	if err := s.Copy(b, 0, v.Buf, v.Off, v.Len); err != nil {
		t.Fatal(err)
	}
	if err := s.Record().Wait(); err != nil {
		t.Fatal(err)
	}
	got := backendtest.ValueOf(&host)
	b.Release()
	return got
}

func fp32(dims []int64, elems ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, elems...)
}
