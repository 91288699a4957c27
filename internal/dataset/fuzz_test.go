package dataset_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// readAny reads a file of a format in every way. Whatever is in it, there are errors with a code and no panic, and the
// chunks have exactly the rows that were cut.
func readAny(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dataset.Open(t.Context(), job.Place{URI: path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := s.Columns(t.Context())
	if err != nil {
		known(t, err)
		return
	}
	var names []string
	for _, c := range columns {
		if c.Kind != dataset.Missing {
			names = append(names, c.Name)
		}
	}
	s = s.Select(names...)
	for c, err := range s.Cut(t.Context(), dataset.CutOptions{MaxRows: 3}) {
		if err != nil {
			known(t, err)
			return
		}
		n := int64(0)
		for row, err := range s.Read(t.Context(), c) {
			if errors.Is(err, dataset.ErrChanged) {
				t.Fatalf("chunk %+v: %v", c, err)
			}
			if err != nil { // a checksum at the end of the file, which Cut has not reached yet
				known(t, err)
				return
			}
			n++
			bindAny(t, row, columns, names)
		}
		if n != c.Rows {
			t.Fatalf("chunk %+v has %d rows", c, n)
		}
		if c.Number > 50 {
			return
		}
	}
}

func known(t *testing.T, err error) {
	t.Helper()
	if code := status.CodeOf(err); code != status.InvalidArg && code != status.Unsupported {
		t.Fatalf("%v: %v", code, err)
	}
}

// bindAny binds each cell of a row to inputs of several types.
func bindAny(t *testing.T, row *dataset.Row, columns []dataset.Column, names []string) {
	t.Helper()
	for _, name := range names {
		for _, d := range []tensor.DType{tensor.FP32, tensor.Int8, tensor.Bytes, tensor.Bool} {
			b, err := dataset.NewBinder(model(1, port("X", d, -1, -1)), &job.Spec{Columns: map[string]string{"X": name}, Keep: names}, columns)
			if err != nil {
				continue
			}
			cell := *row
			cell.Cells = nil
			for _, c := range b.Columns() {
				for i, n := range names {
					if n == c {
						cell.Cells = append(cell.Cells, row.Cells[i])
					}
				}
			}
			if _, err := b.NewBatch(tensor.NewPool()).Add(&cell); err != nil {
				known(t, err)
			}
		}
	}
}

// seed adds the files of testdata with an ending.
func seed(f *testing.F, ending string) {
	f.Helper()
	list, err := filepath.Glob("testdata/*" + ending)
	if err != nil || len(list) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range list {
		if data, err := os.ReadFile(name); err == nil && len(data) < 5000 {
			f.Add(data)
		}
	}
}

func FuzzJSONLines(f *testing.F) {
	seed(f, ".jsonl")
	f.Add([]byte(`{"a":[[1,2],[3]],"b":{"b64":"AA=="},"a":"\ud800"}` + "\n{\"a\":1e999,\"b\":[[],[]]}\n[\n{\"a\":" + strings.Repeat("[", 300)))
	f.Fuzz(func(t *testing.T, data []byte) { readAny(t, "a.jsonl", data) })
}

func FuzzCSV(f *testing.F) {
	seed(f, ".csv")
	f.Add([]byte("a,b\n\"x\"\"\ny\",1\n\"open"))
	f.Fuzz(func(t *testing.T, data []byte) { readAny(t, "a.csv", data) })
}

func FuzzNPZ(f *testing.F) {
	seed(f, ".npz")
	f.Fuzz(func(t *testing.T, data []byte) { readAny(t, "a.npz", data) })
}

func FuzzNPY(f *testing.F) {
	seed(f, ".npy")
	f.Fuzz(func(t *testing.T, data []byte) { readAny(t, "a.npy", data) })
}

func FuzzParquet(f *testing.F) {
	seed(f, ".parquet")
	f.Fuzz(func(t *testing.T, data []byte) { readAny(t, "a.parquet", data) })
}

// TestMutated reads the files of testdata with random bytes changed, and cut off.
func TestMutated(t *testing.T) {
	t.Parallel()
	list, err := filepath.Glob("testdata/*.*")
	if err != nil || len(list) == 0 {
		t.Fatal("no files", err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for _, path := range list {
		name := filepath.Base(path)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".py") {
			continue
		}
		for range 150 {
			data := slices.Clone(whole)
			for range 1 + random.IntN(4) {
				data[random.IntN(len(data))] = byte(random.Uint32())
			}
			if random.IntN(4) == 0 {
				data = data[:random.IntN(len(data))]
			}
			readAny(t, name, data)
		}
	}
}
