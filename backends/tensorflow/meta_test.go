//go:build cgo

package tensorflow

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
)

// metaGraph reads the first MetaGraphDef of a SavedModel's file.
func metaGraph(tb testing.TB, model string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", model+".savedmodel", "saved_model.pb"))
	if err != nil {
		tb.Fatal(err)
	}
	r := &reader{}
	meta := r.message(data).last(2).b
	if r.err != nil {
		tb.Fatal(r.err)
	}
	return meta
}

func TestReadSignatures(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]tensorInfo{
		"fixed":   {at: "serving_default_x:0", kind: "a tensor without a name", dtype: 1, shape: []int64{2, 3}},
		"strings": {at: "serving_default_x:0", kind: "a tensor without a name", dtype: 7, shape: []int64{-1, -1}},
		"scalar":  {at: "serving_default_x:0", kind: "a tensor without a name", dtype: 1},
		"anyrank": {at: "serving_default_x:0", kind: "a tensor without a name", dtype: 1, anyRank: true},
	} {
		all, err := signatures(metaGraph(t, model))
		if err != nil {
			t.Fatal(err)
		}
		s, err := choose(all, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.ins["x"], cmp.AllowUnexported(tensorInfo{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", model, diff)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	none := map[string]signatureDef{initSignature: {}, trainSignature: {}}
	if _, err := choose(none, ""); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("of none: %v", err)
	}
	none["predict"] = signatureDef{outs: map[string]tensorInfo{"first": {}}}
	none["z"] = signatureDef{}
	s, err := choose(none, "")
	if err != nil || len(s.outs) != 1 {
		t.Errorf("of two: %+v %v, want the first by name", s, err)
	}
	none[servingDefault] = signatureDef{ins: map[string]tensorInfo{"usual": {}}}
	if s, err := choose(none, ""); err != nil || len(s.ins) != 1 {
		t.Errorf("of three: %+v %v, want the usual one", s, err)
	}
}

// TestOperation checks the split of tensor names.
func TestOperation(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]struct {
		name  string
		index int
	}{"x": {"x", 0}, "x:0": {"x", 0}, "a/b:12": {"a/b", 12}, "x:": {"x:", 0}, "x:y": {"x:y", 0}, "": {"", 0}, "x:-1": {"x", -1}} {
		if name, index := operation(at); name != want.name || index != want.index {
			t.Errorf("operation(%q) = %q %d, want %q %d", at, name, index, want.name, want.index)
		}
	}
}

// FuzzSignatures checks that damaged signatures yield an error and never a panic.
func FuzzSignatures(f *testing.F) {
	for _, model := range []string{"fixed", "ragged", "two"} {
		meta := metaGraph(f, model)
		i := slices.Index(meta, 0x2a) // the tag of a signature
		f.Add(meta[max(i, len(meta)-2000, 0):])
	}
	f.Fuzz(func(_ *testing.T, meta []byte) {
		if all, err := signatures(meta); err == nil {
			_, _ = choose(all, "")
			for _, s := range all {
				_, _ = portsOf(s.ins, false)
				_, _ = portsOf(s.outs, true)
			}
		}
	})
}
