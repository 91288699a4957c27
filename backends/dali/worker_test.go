package dali_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// execute runs one request of the model identity.
func execute(t *testing.T, m backends.Model, x backends.Instance) error {
	t.Helper()
	pool := tensor.NewPool()
	in := uint8s([]int64{1, 3}, 1, 2, 3).Tensor(t, pool)
	defer in.Release()
	b := &backends.Batch{
		Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}, Rows: 1, In: []tensor.Tensor{in},
		Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: pool,
	}
	defer tensor.ReleaseAll(b.Out)
	if err := errors.Join(x.Execute(t.Context(), b), b.Requests[0].Err); err != nil {
		return err
	}
	if got := backendtest.ValueOf(&b.Out[0]); string(got.Data) != "\x01\x02\x03" {
		t.Errorf("got %v", got)
	}
	return nil
}

// TestRestart checks that a process that ends is replaced, and that another model is not concerned.
func TestRestart(t *testing.T) {
	t.Parallel()
	b := open(t)
	var models [2]backends.Model
	var instances [2]backends.Instance
	for i := range models {
		m, err := b.Load(t.Context(), settings(t, serialized(t, "identity"), bytesInOut))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		if models[i] = m; m.(backends.ReadinessChecker).Ready() != nil {
			t.Error("the model is not ready before it has instances")
		}
		if instances[i], err = m.NewInstance(t.Context(), tensor.Place{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = instances[i].Close() })
		if err := execute(t, m, instances[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !instances[0].(backends.Recycler).Recycle(errors.New("it has grown")) {
		t.Error("the process cannot be recycled")
	}
	if err := execute(t, models[1], instances[1]); err != nil {
		t.Errorf("the other model: %v", err)
	}
	for try := 0; ; try++ { // the first request may find the process before its end is noticed
		err := execute(t, models[0], instances[0])
		if err == nil {
			break
		}
		if try == 3 {
			t.Fatal(err)
		}
	}
}

// mutate reads thousands of damaged pipelines: each is read, or refused with the one exception that has a text for the user.
const mutate = `import random, sys
sys.path.insert(0, sys.argv[1])
import tutti_dali_graph as graphs
r = random.Random(26)
seeds = [open(path, "rb").read() for path in sys.argv[2:]]
refused = 0
for i in range(20000):
    data = bytearray(r.choice(seeds))
    for _ in range(r.randrange(1, 6)):
        at = r.randrange(len(data))
        kind = r.randrange(5)
        if kind == 0: data[at] = r.randrange(256)
        elif kind == 1: data[at] ^= 1 << r.randrange(8)
        elif kind == 2: del data[at:at + r.randrange(1, 40)]
        elif kind == 3: data[at:at] = bytes(r.randrange(256) for _ in range(r.randrange(1, 12)))
        else: data = data[:at]
        if not data: break
    try:
        graph = graphs.read(bytes(data))
        assert graph.outputs and all(isinstance(p.name, str) for p in graph.inputs + graph.outputs)
    except graphs.Malformed as e:
        assert str(e)
        refused += 1
assert 1000 < refused < 20000, refused
`

// TestDamaged reads damaged pipelines.
func TestDamaged(t *testing.T) {
	t.Parallel()
	seeds, err := filepath.Glob(filepath.Join("testdata", "*.dali"))
	if err != nil || len(seeds) == 0 {
		t.Fatal(seeds, err)
	}
	cmd := exec.CommandContext(t.Context(), preparedtest.Runtime(t, "dali"), append([]string{"-c", mutate, "script"}, seeds...)...) //nolint:gosec // the fetched Python
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
