package repository_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/scheduler/device"
)

// spyModel returns the configuration of a model of the backend spy, with more appended.
func spyModel(name, more string) string {
	return "-- " + name + "/config.pbtxt --\nbackend: \"spy\" max_batch_size: 8 " + more + "\n-- " + name + "/1/keep --\n"
}

// TestPassive checks that passive instances are created and closed but execute nothing, and that a model with only
// passive instances returns an error.
// shows: config.instances
func TestPassive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, spyModel("some", "instance_group { count: 2 passive: true } instance_group { count: 1 }")+
		spyModel("none", "instance_group { passive: true }")+ensemble("over", step("none", "-1", "IN", "X"))))
	if f := failures(r); len(f) > 0 {
		t.Fatal(f)
	}
	if some, none := w.spy.count("instance some"), w.spy.count("instance none"); some != 3 || none != 1 {
		t.Errorf("made %d and %d instances, want 3 and 1", some, none)
	}
	if got, err := send(t.Context(), r, w.request("some", 4)); err != nil || got != 8 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, name := range []string{"none", "over"} {
		_, err := send(t.Context(), r, w.request(name, 4))
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "model 'none' has only passive instances, which take no requests") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if some, none := w.spy.count("close instance some"), w.spy.count("close instance none"); some != 3 || none != 1 {
		t.Errorf("closed %d and %d instances, want 3 and 1", some, none)
	}
}

// TestRateLimit checks that models which share one resource never execute at the same time.
// shows: limits.rate
func TestRateLimit(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	w := newWorld(t, stepOf("alone", true, func(ctx context.Context, b *backends.Batch) error {
		if now.Add(1) > 1 {
			t.Error("two executions share a resource of one")
		}
		defer now.Add(-1)
		return double(ctx, b)
	}))
	w.more.Limits = device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 1, Device: device.EveryDevice}}}
	limited := "instance_group { count: 3 rate_limiter { resources { name: 'R' global: true count: 1 } } }"
	r := w.repo(t, folder(t, model("a", "alone", limited)+model("b", "alone", limited+" dynamic_batching {}")+
		model("free", "double", "")+spyModel("much", "instance_group { rate_limiter { resources { name: 'R' global: true count: 2 } } }")))
	want := map[string]string{"much": `Resource count for "R" is limited to 1 which will prevent scheduling of one or more model instances, the minimum required count is 2`}
	if f := failures(r); len(f) != 1 || f["much"] != want["much"] {
		t.Fatalf("failures %v, want %v", f, want)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		sendAll(t, w, r, "a", 50)
	}()
	sendAll(t, w, r, "b", 50)
	sendAll(t, w, r, "free", 50)
	<-done
}

// TestThreads checks that models serve under a limit of one CPU thread.
func TestThreads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Limits = device.Settings{Threads: 1}
	r := w.repo(t, folder(t, spyModel("a", "instance_group { count: 2 }")+spyModel("b", "")))
	sendAll(t, w, r, "a", 50)
	sendAll(t, w, r, "b", 50)
}

// accelerators returns simulated devices with these numbers.
func accelerators(t *testing.T, numbers ...int) (list []tensor.Accelerator) {
	t.Helper()
	machine, err := simdev.New(slices.Max(numbers)+1, simdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, i := range numbers {
		list = append(list, machine.Devices()[i])
	}
	return list
}

// capableDevice is a device with a compute capability.
type capableDevice struct {
	tensor.Accelerator
	major, minor int
}

func (d capableDevice) Capability() (major, minor int) { return d.major, d.minor }

// TestFileOfCapability checks that a model on GPUs has the file of their compute capability.
// shows: config.gpu_files
func TestFileOfCapability(t *testing.T) {
	cudatest.NotAtDevices(t, "it has devices of its own")
	t.Parallel()
	w := newWorld(t)
	list := accelerators(t, 0, 1)
	w.more.Accelerators = []tensor.Accelerator{capableDevice{list[0], 7, 5}, capableDevice{list[1], 9, 0}}
	const files = "default_model_filename: 'any' cc_model_filenames { key: '7.5' value: 'turing' } cc_model_filenames { key: '8.0' value: 'ampere' } "
	r := w.repo(t, folder(t, spyModel("turing", files+"instance_group { kind: KIND_GPU gpus: 0 }")+spyModel("hopper", files+"instance_group { kind: KIND_GPU gpus: 1 }")+
		spyModel("cpu", files+"instance_group { kind: KIND_CPU }")+spyModel("both", files+"instance_group { kind: KIND_GPU }")))
	for what, want := range map[string]int{"file turing of turing": 1, "file any of hopper": 1, "file any of cpu": 1, "instance both": 0} {
		if n := w.spy.count(what); n != want {
			t.Errorf("%s: %d times, want %d", what, n, want)
		}
	}
	if f := failures(r); len(f) != 1 || !strings.Contains(f["both"], "'any' for device:1 of compute capability 9.0 and 'turing' for its other instances") {
		t.Errorf("failures %v", f)
	}
}

// TestDevices checks the number of instances per device of a group.
func TestDevices(t *testing.T) {
	cudatest.NotAtDevices(t, "it has devices of its own")
	t.Parallel()
	w := newWorld(t)
	w.more.Accelerators = accelerators(t, 0, 2)
	r := w.repo(t, folder(t, spyModel("all", "instance_group { kind: KIND_GPU count: 2 } instance_group { kind: KIND_CPU }")+
		spyModel("auto", "instance_group { gpus: 2 }")+spyModel("host", "instance_group { kind: KIND_CPU }")+
		ensemble("ens", step("host", "-1", "IN", "Y"), step("auto", "-1", "Y", "X"))+ensemble("low", step("host", "-1", "IN", "X"))+spyModel("wrong", "instance_group { kind: KIND_GPU gpus: 1 }")))
	if all, auto := w.spy.count("instance all"), w.spy.count("instance auto"); all != 5 || auto != 1 {
		t.Errorf("made %d and %d instances, want 5 and 1", all, auto)
	}
	for place, want := range map[string]int{"device:0 all": 2, "device:2 all": 2, "host all": 1, "device:2 auto": 1} {
		if n := w.spy.count("at " + place); n != want {
			t.Errorf("%d instances at %s, want %d", n, place, want)
		}
	}
	if f := failures(r); len(f) != 1 || !strings.HasPrefix(f["wrong"], "instance group wrong_0 of model wrong specifies invalid or unsupported gpu id 1. ") {
		t.Errorf("failures %v", f)
	}
	if errs := r.Check("all"); len(errs) > 0 {
		t.Error(errs)
	}
	for name, want := range map[string]bool{"all": true, "auto": true, "host": false, "ens": true, "low": false, "none": false} {
		if got := r.OnGPU(name); got != want {
			t.Errorf("model %s is on a GPU: %t, want %t", name, got, want)
		}
	}
}

// TestHostAndDevice checks that a model of both kinds has its instances of the CPU on the host only.
func TestHostAndDevice(t *testing.T) {
	cudatest.NotAtDevices(t, "it has devices of its own")
	t.Parallel()
	w := newWorld(t)
	w.more.Accelerators = accelerators(t, 0)
	w.spy.places = []tensor.Place{{}, simdev.Place(0)}
	r := w.repo(t, folder(t, spyModel("both", "instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU count: 2 }")))
	if f := failures(r); len(f) > 0 {
		t.Fatal(f)
	}
	for place, want := range map[string]int{"host both": 1, "device:0 both": 2} {
		if n := w.spy.count("at " + place); n != want {
			t.Errorf("%d instances at %s, want %d", n, place, want)
		}
	}
}

// TestHostPolicy checks that models serve with host policies, configured or unknown.
func TestHostPolicy(t *testing.T) {
	t.Parallel()
	p, err := device.ParsePolicy("own", map[string]string{"cpu-cores": "0-0"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.more.HostPolicies = map[string]*device.Policy{"own": p, "cpu": p}
	r := w.repo(t, folder(t, spyModel("a", "instance_group { host_policy: 'own' } instance_group { host_policy: 'other' }")+model("b", "double", "")))
	sendAll(t, w, r, "a", 20)
	sendAll(t, w, r, "b", 20)
}
