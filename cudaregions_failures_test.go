//go:build cgo

package tutti_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestCUDARegionsConcurrently sends 100 requests at a time with own regions, while others register and unregister.
func TestCUDARegionsConcurrently(t *testing.T) {
	_, doors := serveRegions(t)
	c := cudatest.NewClient(t)
	type job struct {
		door regionDoor
		name string
		x, y *cudatest.Memory
	}
	var jobs []job
	for name, door := range doors {
		for i := range 34 {
			jobs = append(jobs, job{door, fmt.Sprintf("%s%d", name, i), c.Alloc(i%2, 64), c.Alloc(0, 64)})
		}
	}
	var all sync.WaitGroup
	for n, j := range jobs {
		all.Go(func() {
			device := int64(n % 34 % 2)
			for round := range 3 {
				if err := j.door.register("x"+j.name, j.x.Handle, device, 64); err != nil {
					t.Errorf("%s: %v", j.name, err)
				}
				if err := j.door.register("y"+j.name, j.y.Handle, 0, 64); err != nil {
					t.Errorf("%s: %v", j.name, err)
				}
				first := n*1000 + round
				j.x.Write(0, ints(first, 4))
				model := []string{"gpu0", "gpu1", "host"}[(n+round)%3]
				if _, err := j.door.infer(model, []regionTensor{in(0, "x"+j.name, 0), plain(1, 5)}, []regionTensor{out(0, "y"+j.name, 0, 16)}, nil); err != nil {
					t.Errorf("%s: %v", j.name, err)
				}
				if got := j.y.Read(0, 16); !bytes.Equal(got, ints(first, 4)) {
					t.Errorf("%s, round %d, %s: %v, want from %d", j.name, round, model, got, first)
				}
				for _, r := range []string{"x", "y"} {
					if err := j.door.unregister(r + j.name); err != nil {
						t.Errorf("%s: %v", j.name, err)
					}
				}
			}
		})
	}
	all.Wait()
	if got := doors["grpc"].regions(); len(got) != 0 {
		t.Errorf("regions %v are left", got)
	}
}

// TestCUDARegionEndsMeanwhile kills the client, and registers and unregisters, while requests use its memory. Requests succeed or say
// why; the server serves on.
func TestCUDARegionEndsMeanwhile(t *testing.T) {
	_, doors := serveRegions(t)
	door := doors["grpc"]
	c := cudatest.NewClient(t)
	x := c.Alloc(0, 64)
	x.Write(0, ints(1, 16))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 30 {
				_ = door.register("x", x.Handle, 0, 64) // others have, or the client is dead
				_, err := door.infer("gpu0", []regionTensor{in(0, "x", 0), in(1, "x", 16)}, nil, nil)
				if err != nil && !strings.Contains(err.Error(), "Unable to find shared memory region: 'x'") {
					t.Error(err)
				}
				if err := door.unregister("x"); err != nil && !strings.Contains(err.Error(), "Cannot unregister shared memory region 'x', it is currently in use.") {
					t.Error(err)
				}
			}
		})
	}
	all.Go(c.Kill)
	all.Wait()
	must(t, door.unregister("x"))
	if _, err := door.infer("gpu0", []regionTensor{plain(0, 1), plain(1, 2)}, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestCUDARegionNoMemory fails the driver's allocations one after another: a registration or a request fails cleanly, and then succeeds.
func TestCUDARegionNoMemory(t *testing.T) {
	_, doors := serveRegions(t, "--pinned-memory-pool-byte-size=0")
	defer cudatest.Set(t, "oom", 0)
	for name, door := range doors {
		c := cudatest.NewClient(t)
		x := c.Alloc(0, 64)
		x.Write(0, ints(1, 16))
		cudatest.Set(t, "oom", 1)
		wantRegionError(t, func() error { return door.register("x", x.Handle, 0, 64) },
			"failed to register shared memory region 'x': cuIpcOpenMemHandle at device:0: out of memory (CUDA_ERROR_OUT_OF_MEMORY)")
		cudatest.Set(t, "oom", 0)
		must(t, door.register("x", x.Handle, 0, 64))
		ask := func() error {
			_, err := door.infer("gpu1", []regionTensor{in(0, "x", 0), in(1, "x", 4)}, []regionTensor{out(0, "x", 48, 16)}, nil)
			return err
		}
		cudatest.Set(t, "oom", 1)
		wantRegionError(t, ask, "out of memory")
		cudatest.Set(t, "oom", 0)
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, door.unregister("x"))
	}
}

// lostAlone marks the process of TestCUDARegionLost.
const lostAlone = "TUTTI_TEST_LOST_ALONE"

// TestCUDARegionLost loses GPU 1 while a client has a region there. Requests with it fail and say why, as does a registration; those on
// GPU 0 and on the host go on. It runs in a process of its own, because the driver never gets the device back.
func TestCUDARegionLost(t *testing.T) {
	if os.Getenv(lostAlone) == "" {
		run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:gosec // this test
		run.Env = append(os.Environ(), lostAlone+"=1")
		if text, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		return
	}
	s, doors := serveRegions(t)
	c := cudatest.NewClient(t)
	x, y := c.Alloc(0, 64), c.Alloc(1, 64)
	door := doors["http"]
	must(t, door.register("x", x.Handle, 0, 64))
	must(t, door.register("y", y.Handle, 1, 64))
	x.Write(0, ints(1, 16))
	y.Write(0, ints(1, 16))
	cudatest.Set(t, "lose", 1)
	wantRegionError(t, func() error { // the server notices with the first call
		_, err := door.infer("gpu1", []regionTensor{plain(0, 1), plain(1, 2)}, nil, nil)
		return err
	}, "CUDA_ERROR_LAUNCH_FAILED")
	for name, door := range doors {
		for _, r := range [][]regionTensor{
			{in(0, "y", 0), out(0, "x", 0, 16)}, // read from
			{in(0, "x", 0), out(0, "y", 0, 16)}, // written to
		} {
			for _, model := range []string{"gpu0", "gpu1", "host"} {
				_, err := door.infer(model, []regionTensor{r[0], plain(1, 2)}, r[1:], nil)
				if err == nil || !strings.Contains(err.Error(), "at device:1: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)") {
					t.Errorf("%s, %s: from %s to %s: %v", name, model, r[0].region, r[1].region, err)
				}
			}
		}
		wantRegionError(t, func() error { return door.register("z"+name, y.Handle, 1, 64) }, "failed to register shared memory region 'z"+name+"': ", "CUDA_ERROR_LAUNCH_FAILED")
		for _, model := range []string{"gpu0", "host"} {
			if _, err := door.infer(model, []regionTensor{in(0, "x", 0), plain(1, 2)}, []regionTensor{out(0, "x", 32, 16)}, nil); err != nil {
				t.Errorf("%s, %s: %v", name, model, err)
			}
		}
	}
	must(t, door.unregister(""))
	if got := door.regions(); len(got) != 0 {
		t.Errorf("regions %v are left", got)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("the server's end: %v", err)
	}
}

// TestCUDARegionsTraced records the tensors of requests whose tensors are in regions.
func TestCUDARegionsTraced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	s, doors := serveRegions(t, "--trace-config=level=TENSORS", "--trace-config=rate=1", "--trace-config=triton,file="+path)
	c := cudatest.NewClient(t)
	x, y := c.Alloc(0, 64), c.Alloc(0, 64)
	must(t, doors["grpc"].register("x", x.Handle, 0, 64))
	must(t, doors["grpc"].register("y", y.Handle, 0, 64))
	x.Write(0, ints(7001, 4))
	for name, door := range doors {
		if _, err := door.infer("gpu0", []regionTensor{in(0, "x", 0), plain(1, 5)}, []regionTensor{out(0, "y", 0, 16)}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	must(t, s.Close(context.Background()))
	text, err := os.ReadFile(path) //nolint:gosec // this test's
	must(t, err)
	for _, what := range []string{`"TENSOR_QUEUE_INPUT","tensor":{"name":"INPUT0"`, `"TENSOR_BACKEND_OUTPUT","tensor":{"name":"OUTPUT0"`} {
		want := what + `,"data":"7001,7002,7003,7004","shape":"1,4","dtype":"INT32"`
		if n := strings.Count(string(text), want); n != len(doors) {
			t.Errorf("%s is in %d traces, want %d:\n%s", want, n, len(doors), text)
		}
	}
}
