package cuda_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// childVariable names the function that a process of its own runs: one that breaks a rule, or that has another machine.
const childVariable = "TUTTI_TEST_CUDA_CHILD"

// child runs a function of children in a process of its own, and returns what it prints.
func child(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	cudatest.Require(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$")
	c.Env = append(os.Environ(), append(env, childVariable+"="+name)...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestChild is the process of child.
func TestChild(t *testing.T) { //nolint:paralleltest // is alone in its process
	name := os.Getenv(childVariable)
	if name == "" {
		t.Skip("for other tests")
	}
	children[name](t)
	text, _ := cudatest.Report(t)
	say(text)
}

// say prints for the process that has started this one.
func say(v ...any) { _, _ = fmt.Fprintln(os.Stdout, v...) }

// pair is two streams of a device that break rules, with a host buffer of 64 bytes.
type pair struct {
	t       *testing.T
	driver  *cuda.Driver
	devices []*cuda.Device
	a, b    *cuda.Stream
	host    *tensor.Buffer
}

func newPair(t *testing.T) *pair {
	t.Helper()
	driver, err := cuda.Open(cudatest.Library(t))
	must(t, err)
	list, err := driver.Devices(cuda.Options{})
	must(t, err)
	p := &pair{t: t, driver: driver, devices: list, host: alloc(t, tensor.NewPool(), 64)}
	p.a, err = list[0].Open("a", 0)
	must(t, err)
	p.b, err = list[0].Open("b", 0)
	must(t, err)
	return p
}

// alias returns another buffer of the same memory, about which the owner of the memory is not told.
func (*pair) alias(b *tensor.Buffer, n int) *tensor.Buffer {
	return tensor.NewBuffer(nobody{}, b.Place(), b.Pointer(), n)
}

type nobody struct{}

func (nobody) Free(*tensor.Buffer) {}

func (p *pair) wait() {
	must(p.t, p.a.Record().Wait())
	must(p.t, p.b.Record().Wait())
}

// broken are programs that break one rule each, and what the driver must report, or the process must print.
var broken = map[string]struct {
	run  func(p *pair)
	want string
}{
	"read before it was written": {func(p *pair) {
		must(p.t, p.a.Copy(p.host, 0, alloc(p.t, p.a, 64), 0, 64))
	}, "reads memory that nothing was written to"},
	"read without an event": {func(p *pair) {
		x := alloc(p.t, p.devices[0], 64)
		must(p.t, p.a.Fill(x, 0, 64, nil))
		must(p.t, p.b.Copy(p.host, 0, x, 0, 64))
	}, "is not ordered after "},
	"overwritten while it is read": {func(p *pair) {
		x := alloc(p.t, p.devices[0], 64)
		must(p.t, p.a.Fill(x, 0, 64, nil))
		must(p.t, p.a.Record().Wait())
		must(p.t, p.a.Copy(alloc(p.t, p.a, 64), 0, x, 0, 64))
		must(p.t, p.b.Fill(x, 0, 64, nil))
	}, "is not ordered after "},
	"used before the allocation": {func(p *pair) {
		must(p.t, p.b.Fill(alloc(p.t, p.a, 64), 0, 64, nil))
	}, "allocation"},
	"used after the release": {func(p *pair) {
		x := alloc(p.t, p.a, 64)
		old := p.alias(x, 64)
		x.Release()
		p.wait()
		_ = p.a.Fill(old, 0, 64, nil)
	}, "leaves its allocation"},
	"released while it is used": {func(p *pair) {
		x := alloc(p.t, p.a, 64)
		must(p.t, p.a.Record().WaitOn(p.b))
		must(p.t, p.b.Fill(p.alias(x, 64), 0, 64, nil))
		x.Release()
	}, "stream"},
	"released twice": {func(p *pair) {
		x := alloc(p.t, p.a, 64)
		again := tensor.NewBuffer(p.devices[0], x.Place(), x.Pointer(), 64)
		x.Release()
		again.Release()
	}, "a release of memory at device:0 that is not allocated"},
	"beyond the end": {func(p *pair) {
		_ = p.a.Copy(p.alias(alloc(p.t, p.a, 64), 4096), 1000, p.host, 0, 64)
	}, "a copy of 64 bytes by stream"},
	"not aligned": {func(p *pair) {
		_ = p.a.Fill(alloc(p.t, p.a, 64), 2, 8, []byte{1, 2, 3, 4})
	}, "is not aligned"},
	"never released": {func(p *pair) {
		alloc(p.t, p.a, 64)
		must(p.t, p.a.Close())
		must(p.t, p.b.Close())
		say(p.driver.Close())
	}, "device:0: buffers of 64 bytes together are still held"},
	"stream left open": {func(p *pair) {
		must(p.t, p.a.Fill(alloc(p.t, p.a, 64), 0, 64, nil))
		say(p.driver.Close())
	}, "device:0: 2 streams are still open"},
	"pinned memory released early": {func(p *pair) {
		const n = 2 << 20
		cudatest.Set(p.t, "slow_mbs", 100)
		for range 20 { // the driver may be faster
			pool := cuda.NewPinned(p.devices[0], n, tensor.NewPool())
			from := alloc(p.t, pool, n)
			must(p.t, p.a.Copy(alloc(p.t, p.a, n), 0, tensor.NewBuffer(nobody{}, from.Place(), from.Pointer(), n), 0, n))
			from.Release()
			pool.Close()
		}
	}, "pinned memory is released before a copy of stream"},
	"host access": {func(p *pair) {
		x := alloc(p.t, p.devices[0], 64)
		must(p.t, p.a.Fill(x, 0, 64, nil))
		p.wait()
		say("read", *(*byte)(x.Pointer()))
	}, "unexpected fault address"},
}

// children are the functions of child.
var children = map[string]func(*testing.T){
	"out of memory": eachAllocationFails, "lost": eachOperationLoses, "first use": firstUse,
	"elapsed": func(t *testing.T) {
		t.Helper()
		driver, err := cuda.Open(cudatest.Library(t))
		must(t, err)
		r := cudatest.ElapsedTimes(t)
		ordered := r.Ms >= 0
		r.Ms = 0
		_, faults := cudatest.Report(t)
		say(fmt.Sprintf("%+v", r), faults, ordered)
		must(t, driver.Close())
	},
	"machine": func(t *testing.T) {
		t.Helper()
		driver, err := cuda.Open(cudatest.Library(t))
		if err != nil {
			say("open:", err)
			return
		}
		list, err := driver.Devices(cuda.Options{})
		if err != nil {
			say("devices:", err)
			return
		}
		for _, d := range list {
			say(d.Place(), d.Info().UUID[:12])
		}
		_, err = list[0].Alloc(64)
		say("alloc:", err)
		say("lost:", list[0].Lost())
	},
}

func init() { //nolint:gochecknoinits // two tables of one kind
	for name, b := range broken {
		children[name] = func(t *testing.T) {
			t.Helper()
			p := newPair(t)
			b.run(p)
			p.wait()
		}
	}
}

// TestBrokenRules checks that the driver detects each kind of mistake, with several orders of execution.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range 3 {
				out, _ := child(t, name, fmt.Sprintf("TUTTI_CUDA_CHECK_SEED=%d", seed), "TUTTI_CUDA_CHECK_LATE_US=1000000")
				if !strings.Contains(out, b.want) {
					t.Errorf("seed %d: the driver reports\n%s\nwant %q", seed, out, b.want)
				}
			}
		})
	}
}

// TestMachines checks what is said of machines without the devices that are wanted.
func TestMachines(t *testing.T) {
	t.Parallel()
	uuid := func(i int) string { return "GPU-" + strings.Repeat(fmt.Sprintf("%02x", i), 4) }
	both := fmt.Sprintf("device:0 %s\ndevice:1 %s\n", uuid(0), uuid(1))
	swapped := fmt.Sprintf("device:0 %s\ndevice:1 %s\n", uuid(1), uuid(0))
	only := fmt.Sprintf("device:0 %s\nalloc: <nil>", uuid(1))
	hidden := "there is no GPU, or CUDA_VISIBLE_DEVICES hides it"
	for _, tc := range []struct{ name, env, want string }{
		{"all", "X=", both},
		{"none visible", "CUDA_VISIBLE_DEVICES=", hidden},
		{"other order", "CUDA_VISIBLE_DEVICES=1,0", swapped},
		{"one", "CUDA_VISIBLE_DEVICES=1", only},
		{"until an invalid number", "CUDA_VISIBLE_DEVICES=1,7,0", only},
		{"until -1", "CUDA_VISIBLE_DEVICES=1,-1,0", only},
		{"no number", "CUDA_VISIBLE_DEVICES=x", hidden},
		{"twice", "CUDA_VISIBLE_DEVICES=0,0", hidden},
		{"by UUID", "CUDA_VISIBLE_DEVICES=" + uuid(1), only},
		{"no device", "TUTTI_CUDA_CHECK_DEVICES=0", hidden},
		{"old driver", "TUTTI_CUDA_CHECK_VERSION=11020", "the CUDA driver supports CUDA 11.2, expected 11.8 or newer: update the NVIDIA driver"},
		{"exclusive", "TUTTI_CUDA_CHECK_EXCLUSIVE=1", "another process has the GPU in exclusive mode\nlost: <nil>"},
		{"no memory for a context", "TUTTI_CUDA_CHECK_OOM_AT=1", "cuDevicePrimaryCtxRetain at device:0: out of memory"},
		{"lacking", cudatest.Variable + "=" + filepath.Join(filepath.Dir(os.Getenv(cudatest.Variable)), "libcuda-lacking.so.1"), "has no function cuMemPoolTrimTo; expected a driver of CUDA 11.8 or newer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, "machine", tc.env)
			if err != nil || !strings.Contains(out, tc.want) {
				t.Errorf("%v:\n%s\nwant %q", err, out, tc.want)
			}
		})
	}
}
