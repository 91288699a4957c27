package meter_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/tutti-server/tutti/backends/wasm/meter"
	w "github.com/tutti-server/tutti/backends/wasm/wasmtest"
)

// errSpent is the panic of a host that gives no more fuel.
var errSpent = errors.New("no more fuel")

// metered returns an instance of a metered module whose host gives fuel in slices of n, up to limit, and counts what it gave.
func metered(tb testing.TB, module []byte, n, limit int64) (mod api.Module, given *int64) {
	tb.Helper()
	out, err := meter.Add(module)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig())
	tb.Cleanup(func() { _ = r.Close(context.WithoutCancel(ctx)) })
	given = new(int64)
	refuel := func(_ context.Context, stack []uint64) {
		if *given >= limit {
			panic(errSpent)
		}
		*given += n
		stack[0] = uint64(n)
	}
	_, err = r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(refuel), nil, []api.ValueType{api.ValueTypeI64}).Export(meter.Function).Instantiate(ctx)
	if err == nil {
		mod, err = r.Instantiate(ctx, out)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return mod, given
}

// counted is a loop over the first parameter, whose body also has an inner loop of three iterations. It returns the number of
// iterations of both.
func counted() []byte {
	add := func(local uint32, n int32) []byte {
		return w.Join(w.Op(w.LocalGet, local), w.I32(n), []byte{w.I32Add}, w.Op(w.LocalSet, local))
	}
	inner := w.Join(w.I32(3), w.Op(w.LocalSet, 1), []byte{w.Loop, w.Empty}, add(3, 1), add(1, -1), w.Op(w.LocalGet, 1), w.Op(w.BrIf, 0), []byte{w.End})
	m := w.Module{Execute: w.Join([]byte{w.Loop, w.Empty}, inner, add(3, 1), add(0, -1), w.Op(w.LocalGet, 0), w.Op(w.BrIf, 0), []byte{w.End}, w.Op(w.LocalGet, 3))}
	return m.Bytes()
}

// TestFuel checks that a metered module computes as before, that its fuel depends on its iterations only, and what they cost.
func TestFuel(t *testing.T) {
	t.Parallel()
	const (
		inner = 8 + 2 + 1         // two additions, the branch and the end
		outer = 2 + 1 + 8 + 2 + 1 // the number of iterations of the inner loop, the loop, and as above
	)
	for _, slice := range []int64{1, 7, 100, 1 << 40} {
		mod, given := metered(t, counted(), slice, 1<<50)
		for _, n := range []uint64{1, 2, 1000} {
			fuel := mod.ExportedGlobal(meter.Global).(api.MutableGlobal)
			fuel.Set(0)
			*given = 0
			got, err := mod.ExportedFunction("tutti_execute").Call(t.Context(), n, 0)
			if err != nil || got[0] != 4*n {
				t.Fatalf("%d iterations: %v, %v", n, got, err)
			}
			if slice == 1<<40 { // the host was asked once, at the first charge, which is forgiven
				used := *given - int64(fuel.Get())
				if want := int64(n) * (outer + 3*inner); used < want-outer || used > want+inner {
					t.Errorf("%d iterations took %d, want about %d", n, used, want)
				}
			}
		}
	}
}

// TestSpent checks that the host can end an execution, and that the module can be called again.
func TestSpent(t *testing.T) {
	t.Parallel()
	mod, given := metered(t, counted(), 100, 1000)
	if _, err := mod.ExportedFunction("tutti_execute").Call(t.Context(), 1<<31, 0); !errors.Is(err, errSpent) {
		t.Errorf("Call: %v", err)
	}
	*given = 0
	if got, err := mod.ExportedFunction("tutti_execute").Call(t.Context(), 2, 0); err != nil || got[0] != 8 {
		t.Errorf("after it: %v, %v", got, err)
	}
}

// TestGuest checks that modules of compilers are valid with their meter, and keep the names of their functions.
func TestGuest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"../../../examples/backends/wasm/simple_wasm/1/model.wasm", "../../../examples/ensembles/forecast/forecast_sentence/1/model.wasm",
	} {
		module, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mod, given := metered(t, module, 1<<20, 1<<30)
		if got, err := mod.ExportedFunction("tutti_buffer").Call(t.Context(), 1000); err != nil || got[0] == 0 || *given == 0 {
			t.Errorf("%s: %v, %v, fuel %d", path, got, err, *given)
		}
	}
}

// names returns a custom section with the names of functions 0 and 2.
func names(text string) []byte {
	list := slices.Concat([]byte{2, 0, byte(len(text))}, []byte(text), []byte{2, 1, 'x'})
	body := slices.Concat([]byte{4}, []byte("name"), []byte{1, byte(len(list))}, list)
	return slices.Concat([]byte{0, byte(len(body))}, body)
}

// TestNames checks that the names of functions move with them, and that names which cannot be read do no harm.
func TestNames(t *testing.T) {
	t.Parallel()
	m := w.Module{Version: []byte{w.Unreachable}, Custom: names("version")}
	mod, _ := metered(t, m.Bytes(), 1, 1)
	if _, err := mod.ExportedFunction("tutti_abi_version").Call(t.Context()); err == nil || !strings.Contains(err.Error(), ".version() i32") {
		t.Errorf("%v, want the name of the function in the trace", err)
	}
	m.Custom = names("version")
	m.Custom[9] = 77
	metered(t, m.Bytes(), 1, 1)
}

// BenchmarkLoop compares a loop of a million iterations without a meter, with it, and with the interruption that wazero has.
func BenchmarkLoop(b *testing.B) {
	const n = 1 << 20
	run := func(name string, mod api.Module) {
		b.Run(name, func(b *testing.B) {
			f := mod.ExportedFunction("tutti_execute")
			for b.Loop() {
				if _, err := f.Call(b.Context(), n, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4*n), "ns/iteration")
		})
	}
	plain := func(config wazero.RuntimeConfig) api.Module {
		r := wazero.NewRuntimeWithConfig(b.Context(), config)
		mod, err := r.Instantiate(b.Context(), counted())
		if err != nil {
			b.Fatal(err)
		}
		return mod
	}
	mod, _ := metered(b, counted(), 1<<20, 1<<62)
	run("plain", plain(wazero.NewRuntimeConfig()))
	run("metered", mod)
	run("closed on done", plain(wazero.NewRuntimeConfig().WithCloseOnContextDone(true)))
}

// FuzzAdd checks that no bytes do harm, and that a module which wazero accepts is accepted with its meter.
func FuzzAdd(f *testing.F) {
	f.Add(counted())
	m := w.Module{Globals: 2, Table: 3, Start: []byte{}, Custom: names("v"), Initialize: w.Join(w.I32(0), w.I32(0), w.I32(9), []byte{w.Misc, 11, 0}, w.I32(0)), Data: []w.Data{{At: 3, Bytes: []byte("x")}}}
	f.Add(m.Bytes())
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(64))
	f.Fuzz(func(t *testing.T, module []byte) {
		out, err := meter.Add(module)
		if err != nil {
			return
		}
		if original, err := r.CompileModule(ctx, module); err == nil {
			_ = original.Close(ctx)
			with, err := r.CompileModule(ctx, out)
			if err != nil {
				t.Fatalf("the module is valid, with its meter it is not: %v", err)
			}
			_ = with.Close(ctx)
		}
	})
}
