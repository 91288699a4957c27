package dataset_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// archive returns a .npz whose arrays of INT8 have a number of zeros, and headers that say another.
func archive(tb testing.TB, arrays map[string][2]int64) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for name, n := range arrays {
		w, err := z.Create(name + ".npy") // compressed
		if err != nil {
			tb.Fatal(err)
		}
		header := fmt.Sprintf("{'descr': '|i1', 'fortran_order': False, 'shape': (%d,), }\n", n[0])
		if _, err := w.Write(append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(header)); err != nil {
			tb.Fatal(err)
		}
		for left := n[1]; left > 0; left -= int64(len(zeros)) {
			if _, err := w.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestArrayBombs reads files of which little is much when it is decompressed: nothing near that much is allocated.
func TestArrayBombs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		arrays map[string][2]int64
		want   string
	}{
		{"more than the header says", map[string][2]int64{"a": {10, 300 << 20}}, "array 'a' has more than 10 bytes, and its header says 10"},
		{"a header that says more than a file may have", map[string][2]int64{"a": {1<<30 + 1, 100}}, "may have 1073741824 together"},
		{"a header that says more than there is", map[string][2]int64{"a": {1 << 30, 100}}, "array 'a' has 100 bytes, and its header says 1073741824"},
	} {
		data := archive(t, tt.arrays)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := dataset.ReadArrays(data)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: a file of %d bytes made %d", tt.name, len(data), n)
		}
	}
	list, err := dataset.ReadArrays(archive(t, map[string][2]int64{"a": {3, 3}, "b": {0, 0}}))
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// FuzzArrays reads files of arrays as --data of infer does, for example captured requests.
func FuzzArrays(f *testing.F) {
	for _, ending := range []string{".npz", ".npy"} {
		names, err := filepath.Glob("testdata/*" + ending)
		if err != nil || len(names) == 0 {
			f.Fatal("no seeds", err)
		}
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil && len(data) < 5000 {
				f.Add(data)
			}
		}
	}
	f.Add(archive(f, map[string][2]int64{"a": {3, 3}, "b": {0, 0}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := dataset.ReadArrays(data)
		if err != nil {
			known(t, err)
			return
		}
		for _, a := range list {
			if n := tensor.Of(a.Shape...).Elements() * int64(a.DType.Size()); n != int64(len(a.Data)) {
				t.Errorf("array '%s' of %s %v has %d bytes", a.Name, a.DType, a.Shape, len(a.Data))
			}
		}
	})
}
