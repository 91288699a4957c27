package python_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// workerInfo is the description that the model "process" returns of its worker.
type workerInfo struct {
	pid, parent, group int
	drawn              int64
	name               string
}

// testInstance is an instance of the model "process".
type testInstance struct {
	backends.Instance
	alloc tensor.Allocator
}

// send makes the worker end by a signal, or describe itself if the signal is 0.
func (a testInstance) send(t *testing.T, signal syscall.Signal) (workerInfo, error) {
	t.Helper()
	in, err := tensor.New(a.alloc, tensor.Int64, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	tensor.Slice[int64](&in)[0] = int64(signal)
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 2), Allocator: a.alloc, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}}
	defer func() { tensor.ReleaseAll(b.Out) }()
	if err := a.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := b.Requests[0].Err; err != nil {
		return workerInfo{}, err
	}
	v := tensor.Slice[int64](&b.Out[0])
	name, _, _ := tensor.NextBytes(b.Out[1].Bytes())
	return workerInfo{int(v[0]), int(v[1]), int(v[2]), v[3], string(name)}, nil
}

// report returns the worker's description, which must succeed.
func (a testInstance) report(t *testing.T) workerInfo {
	t.Helper()
	v, err := a.send(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func opened(t *testing.T, o backends.Options) backends.Backend {
	t.Helper()
	b, err := python.NewFactory().New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// running returns instances of a model, which the test closes.
func running(t *testing.T, b backends.Backend, s backends.Settings, n int) []backends.Instance {
	t.Helper()
	ends := func(end func() error) {
		t.Cleanup(func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
	m, err := b.Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ends(m.Close)
	list := make([]backends.Instance, n)
	for i := range list {
		if list[i], err = m.NewInstance(t.Context(), tensor.Place{}); err != nil {
			t.Fatal(err)
		}
		ends(list[i].Close)
	}
	return list
}

// instances returns instances of the model "process", with changed settings.
func instances(t *testing.T, b backends.Backend, n int, change func(*backends.Settings)) []testInstance {
	t.Helper()
	s := settings(t, "process", &modelconfig.ModelConfig{
		Input:  []*modelconfig.ModelInput{input("SIGNAL", tensor.Int64, 1)},
		Output: []*modelconfig.ModelOutput{output("TOLD", tensor.Int64, 4), output("NAME", tensor.Bytes, 1)},
	})
	if change != nil {
		change(&s)
	}
	list := make([]testInstance, n)
	for i, x := range running(t, b, s, n) {
		list[i] = testInstance{x, s.Alloc}
	}
	return list
}

// TestFork checks that the workers of two models are children of one fork server, named after their model, each
// with its own process group and random seed.
func TestFork(t *testing.T) {
	t.Parallel()
	b := opened(t, options(t))
	var all []workerInfo
	for _, x := range append(instances(t, b, 2, nil), instances(t, b, 1, nil)...) {
		all = append(all, x.report(t))
	}
	drawn := map[int64]bool{}
	for _, v := range all {
		drawn[v.drawn] = true
		if v.parent != all[0].parent || v.parent == os.Getpid() {
			t.Errorf("a worker's parent is %d, expected that of the others and not this process: %+v", v.parent, all)
		}
		if v.group != v.pid {
			t.Errorf("worker %d is in the group %d", v.pid, v.group)
		}
		if v.name != "py:process" {
			t.Errorf("a worker's process is named %q", v.name)
		}
	}
	if len(drawn) != len(all) {
		t.Errorf("workers drew the same random numbers: %+v", all)
	}
}

// TestForkedWorkerDies checks that a killed worker fails its own request only, and is replaced.
func TestForkedWorkerDies(t *testing.T) {
	t.Parallel()
	x := instances(t, opened(t, options(t)), 2, nil)
	dead, other := x[0].report(t), x[1].report(t)
	if _, err := x[0].send(t, syscall.SIGKILL); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("a request whose worker was killed ended with %v", err)
	}
	if v := x[1].report(t); v.pid != other.pid {
		t.Errorf("the other worker is %d now, expected %d", v.pid, other.pid)
	}
	if v := x[0].report(t); v.pid == dead.pid || v.parent != dead.parent {
		t.Errorf("the worker is %+v after it was killed, expected another than %+v of the same parent", v, dead)
	}
}

// TestForkServerDies checks that workers outlive the fork server, and that the next worker has a new one as its
// parent.
func TestForkServerDies(t *testing.T) {
	t.Parallel()
	x := instances(t, opened(t, options(t)), 2, nil)
	first := x[0].report(t)
	if err := syscall.Kill(first.parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v := x[0].report(t); v.pid != first.pid {
			t.Errorf("the worker is %d, expected %d", v.pid, first.pid)
		}
	}
	if _, err := x[0].send(t, syscall.SIGABRT); err == nil {
		t.Error("a request whose worker was ended succeeded")
	}
	if v := x[0].report(t); v.pid == first.pid || v.parent == first.parent || v.parent == os.Getpid() {
		t.Errorf("the worker is %+v, expected one of a new fork server", v)
	}
}

// TestForkServersLeaveNothing checks that a fork server that has exited holds no descriptor, while models go on to use its interpreter.
func TestForkServersLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts the descriptors of this process
	x := instances(t, opened(t, options(t)), 1, nil)[0]
	counts := make([]int, 4)
	for i := range counts {
		v := x.report(t)
		if err := syscall.Kill(v.parent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := x.send(t, syscall.SIGKILL); err == nil {
			t.Error("a request whose worker was ended succeeded")
		}
		if next := x.report(t); next.parent == v.parent {
			t.Fatalf("the worker is %+v, expected one of a new fork server", next)
		}
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		counts[i] = len(list)
	}
	if counts[len(counts)-1] != counts[0] {
		t.Errorf("the descriptors after each exit of a fork server are %v, expected the same number", counts)
	}
}

// TestForkServerFailsOnce checks that workers are forked again after a fork server could not start for a while, for example with a full
// disk. Meanwhile they are spawned.
func TestForkServerFailsOnce(t *testing.T) {
	t.Parallel()
	o, dir := options(t), t.TempDir()
	full, moody := filepath.Join(dir, "full"), filepath.Join(dir, "python3")
	text := "#!/bin/sh\nfor a; do [ \"$a\" = forkserver ] && [ -e '" + full + "' ] && exit 1; done\nexec '" + preparedtest.Runtime(t, "python") + "' \"$@\"\n"
	if err := os.WriteFile(moody, []byte(text), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	o.Config = map[string]string{"python-runtime": moody, "stub-timeout-seconds": "600"}
	x := instances(t, opened(t, o), 1, nil)
	first := x[0].report(t)
	if err := errors.Join(os.WriteFile(full, nil, 0o600), syscall.Kill(first.parent, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if _, err := x[0].send(t, syscall.SIGKILL); err == nil {
		t.Error("a request whose worker was ended succeeded")
	}
	if v := x[0].report(t); v.parent != os.Getpid() {
		t.Errorf("the worker is %+v while no fork server can start, expected a child of this process", v)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if _, err := x[0].send(t, syscall.SIGKILL); err == nil {
		t.Error("a request whose worker was ended succeeded")
	}
	if v := x[0].report(t); v.parent == os.Getpid() || v.parent == first.parent {
		t.Errorf("the worker is %+v, expected one of a new fork server", v)
	}
}

// TestSpawn checks that this process starts workers itself if the model or the backend asks for it, or if the fork
// server cannot start.
func TestSpawn(t *testing.T) {
	t.Parallel()
	o := options(t)
	path := preparedtest.Runtime(t, "python")
	barren := filepath.Join(t.TempDir(), "python3")
	text := "#!/bin/sh\nfor a; do [ \"$a\" = forkserver ] && exit 1; done\nexec '" + path + "' \"$@\"\n"
	if err := os.WriteFile(barren, []byte(text), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	with := func(key, value string) backends.Options {
		more := o
		more.Config = map[string]string{key: value, "stub-timeout-seconds": "600"}
		return more
	}
	wanted := func(s *backends.Settings) {
		s.Config.Parameters = map[string]*modelconfig.ModelParameter{"START_METHOD": {StringValue: "spawn"}}
	}
	for name, c := range map[string]struct {
		options backends.Options
		change  func(*backends.Settings)
	}{
		"model":   {o, wanted},
		"backend": {with("start-method", "spawn"), nil},
		"barren":  {with("python-runtime", barren), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := instances(t, opened(t, c.options), 1, c.change)[0].report(t)
			if v.parent != os.Getpid() || v.group != v.pid || v.name != "py:process" {
				t.Errorf("the worker is %+v, expected a child of %d", v, os.Getpid())
			}
		})
	}
}

// TestStartMethod checks that other start methods are refused.
func TestStartMethod(t *testing.T) {
	t.Parallel()
	o := options(t)
	s := settings(t, "add_sub", addSub(0))
	s.Config.Parameters = map[string]*modelconfig.ModelParameter{"START_METHOD": {StringValue: "clone"}}
	const want = "unexpected value 'clone' of parameter 'START_METHOD': expected 'forkserver' or 'spawn'"
	if _, err := opened(t, o).Load(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Load = %v, want %q", err, want)
	}
	o.Config = map[string]string{"start-method": "clone"}
	if _, err := python.NewFactory().New(o); err == nil || !strings.Contains(err.Error(), "python setting 'start-method'") {
		t.Errorf("New = %v, want the setting refused", err)
	}
}

// TestReload checks that a model that is loaded again imports the changed module.
func TestReload(t *testing.T) {
	t.Parallel()
	b := opened(t, options(t))
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/models/process/1/model.py")
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) workerInfo {
		t.Helper()
		changed := strings.Replace(string(text), "name = f.read().strip()", "import said\n            name = said.WHAT", 1)
		for path, content := range map[string]string{"model.py": changed, "said.py": "WHAT = '" + name + "'\n"} {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return instances(t, b, 1, func(s *backends.Settings) { s.Dir, s.ModelDir = dir, dir })[0].report(t)
	}
	for _, name := range []string{"once", "changed since"} {
		if v := load(name); v.name != name {
			t.Errorf("the model says %q, want %q", v.name, name)
		}
	}
}

// TestRagged checks that requests of different shapes execute in one batch, each with its own shape.
func TestRagged(t *testing.T) {
	t.Parallel()
	s := settings(t, "add_sub", addSub(8))
	for _, in := range s.Config.GetInput() {
		in.AllowRaggedBatch = true
	}
	m, err := opened(t, options(t)).Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	of := func(dims []int64, v ...float32) tensor.Tensor {
		in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(dims...))
		if err != nil {
			t.Fatal(err)
		}
		copy(tensor.Slice[float32](&in), v)
		return in
	}
	all := of([]int64{5}, 1, 2, 3, 4, 5)
	one, two := of([]int64{1, 3}, 1, 2, 3), of([]int64{2, 1}, 4, 5)
	defer tensor.ReleaseAll([]tensor.Tensor{all, one, two})
	b := &backends.Batch{Rows: 3, In: []tensor.Tensor{all, all}, Out: make([]tensor.Tensor, 2), Allocator: s.Alloc, Requests: []backends.Request{
		{Ctx: t.Context(), Rows: 1, In: []tensor.Tensor{one, one}}, {Ctx: t.Context(), First: 1, Rows: 2, In: []tensor.Tensor{two, two}},
	}}
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float32{{2, 4, 6}, {8, 10}} {
		q := &b.Requests[i]
		if q.Err != nil {
			t.Fatal(q.Err)
		}
		got := tensor.Slice[float32](&q.Out[0])
		if !q.Out[0].Shape.Equal(q.In[0].Shape) || len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("request %d: %s %v, want %s %v", i, q.Out[0].Shape, got, q.In[0].Shape, want)
		}
		tensor.ReleaseAll(q.Out)
	}
	b.Requests[0].In = nil
	b.Requests[0].Out, b.Requests[1].Out = nil, nil
	if err := x.Execute(t.Context(), b); err != nil || b.Requests[0].Err == nil {
		t.Errorf("a batch without its requests' shapes: %v, %v, want an error of its requests", err, b.Requests[0].Err)
	}
}
