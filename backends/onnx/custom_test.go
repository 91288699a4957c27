//go:build cgo

package onnx

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// twice is a library with one operator, tutti.test:Twice: y = 2 x for float tensors. It takes the runtime's
// functions by their position in the table, as ort.h does.
const twice = `
#include <stddef.h>
#include <stdint.h>
struct op {
	uint32_t version;
	void *(*create)(const struct op *, const void *, const void *);
	const char *(*name)(const struct op *), *(*provider)(const struct op *);
	int (*in_type)(const struct op *, size_t); size_t (*ins)(const struct op *);
	int (*out_type)(const struct op *, size_t); size_t (*outs)(const struct op *);
	void (*compute)(void *, void *), (*destroy)(void *);
	int (*in_kind)(const struct op *, size_t), (*out_kind)(const struct op *, size_t);
	void *rest[32];
};
static void *const *api;
static void *create(const struct op *o, const void *a, const void *i) { return (void *)o; }
static const char *name(const struct op *o) { return "Twice"; }
static const char *provider(const struct op *o) { return 0; }
static int type(const struct op *o, size_t i) { return 1; }
static size_t one(const struct op *o) { return 1; }
static int kind(const struct op *o, size_t i) { return 0; }
static void destroy(void *k) {}
static void compute(void *k, void *ctx) {
	const void *in; void *out, *info; float *from, *to; int64_t n;
	((void *(*)(void *, size_t, const void **))api[90])(ctx, 0, &in);
	((void *(*)(const void *, void **))api[65])(in, &info);
	((void *(*)(void *, int64_t *, size_t))api[62])(info, &n, 1);
	((void (*)(void *))api[99])(info);
	((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[91])(ctx, 0, &n, 1, &out);
	((void *(*)(const void *, float **))api[51])(in, &from);
	((void *(*)(void *, float **))api[51])(out, &to);
	for (int64_t i = 0; i < n; i++) to[i] = 2 * from[i];
}
static struct op op = {11, create, name, provider, type, one, type, one, compute, destroy, kind, kind};
void *RegisterCustomOps(void *options, const struct { void *const *(*get)(uint32_t); const char *(*v)(void); } *base) {
	static void *domain;
	api = base->get(24);
	void *st = ((void *(*)(const char *, void **))api[26])("tutti.test", &domain);
	if (!st) st = ((void *(*)(void *, void *))api[27])(domain, &op);
	if (!st) st = ((void *(*)(void *, void *))api[28])(options, domain);
	return st;
}
`

// TestCustomOperators checks a model that uses an operator of a custom library.
// shows: config.operators
func TestCustomOperators(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := filepath.Join(dir, "1")
	model, err := os.ReadFile(filepath.Join("testdata", "custom.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{filepath.Join(dir, "twice.c"): []byte(twice), filepath.Join(version, "model.onnx"): model} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, "twice.so"), filepath.Join(dir, "twice.c")).CombinedOutput(); err != nil {
		t.Skipf("no working gcc: %v: %s", err, out)
	}
	b := openBackend(t, nil)
	load := func(file string) (backends.Model, error) {
		cfg := parseConfig(t, `model_operations { op_library_filename: "`+file+`" }`)
		return b.Load(t.Context(), backends.Settings{Model: "m", Dir: version, ModelDir: dir, Config: cfg, Instances: 1})
	}
	if _, err := load("twice.c"); err == nil || !strings.Contains(err.Error(), "operator library '"+filepath.Join(dir, "twice.c")+"': onnx runtime error") {
		t.Errorf("loading something else = %v", err)
	}
	m, err := load("twice.so")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := runTwice(t, m); got != 8 {
		t.Errorf("twice 4 is %v", got)
	}
}

func runTwice(t *testing.T, m backends.Model) float32 {
	t.Helper()
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	*(*float32)(in.Pointer()) = 4
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	defer b.Out[0].Release()
	return *(*float32)(b.Out[0].Pointer())
}
