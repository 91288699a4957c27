package dataset_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCutFrom continues at each chunk of a dataset of each format: the chunks that follow are those of a cut of all.
func TestCutFrom(t *testing.T) {
	t.Parallel()
	lines, table := "\xef\xbb\xbf", "\xef\xbb\xbfv,w\r\n"
	for i := range 40 {
		lines += fmt.Sprintf("{\"v\": \"%d\"}\n", i*i)
		table += fmt.Sprintf("%d,\"a\n\"\"%d\"\"\"\r\n", i*i, i)
		if i%7 == 3 {
			lines, table = lines+"\n  \n", table+"\r\n"
		}
		if i == 20 {
			lines, table = lines+"broken\n", table+"1,2,3\r\n"
		}
	}
	folder := map[string]string{}
	for i := range 9 {
		folder[fmt.Sprintf("sub/%d.txt", i)] = fmt.Sprint("text ", i)
	}
	sets := map[string]*dataset.Set{
		"jsonl":       open(t, write(t, map[string]string{"a.jsonl": lines, "b.jsonl": "", "c.jsonl": lines[3:], "other.txt": "no row"}), "jsonl"),
		"csv":         open(t, write(t, map[string]string{"a.csv": table, "b.csv": "v,w\r\n", "c.csv": table}), ""),
		"gzip":        open(t, write(t, map[string]string{"a.jsonl.gz": gzipped(t, lines), "b.jsonl.gz": gzipped(t, lines)}), ""),
		"texts":       open(t, write(t, folder), "texts"),
		"zst":         open(t, "testdata/pandas.jsonl.zst", ""),
		"arrays":      open(t, "testdata/arrays.npz", ""),
		"compressed":  open(t, "testdata/compressed.npz", ""),
		"single":      open(t, "testdata/single.npy", ""),
		"parquet":     open(t, "testdata/types.parquet", "").Select("i8", "list", "s"),
		"two parquet": open(t, write(t, map[string]string{"a.parquet": file(t, "testdata/pandas.parquet"), "b.parquet": file(t, "testdata/pandas.parquet")}), ""),
	}
	for name, s := range sets {
		for _, o := range []dataset.CutOptions{{MaxRows: 1}, {MinRows: 3, MaxRows: 3}, {MinRows: 1, MaxRows: 6}, {MaxRows: 30, MaxBytes: 20}, {}} {
			all := cut(t, s, o)
			if len(all) == 0 {
				t.Fatalf("%s has no chunk", name)
			}
			for i, c := range all {
				o.From = c
				if d := cmp.Diff(all[i:], cut(t, s, o)); d != "" {
					t.Fatalf("%s, %+v, from chunk %d (-want +got):\n%s", name, o, i, d)
				}
			}
		}
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCutFromChanged refuses to continue where the dataset is another one.
func TestCutFromChanged(t *testing.T) {
	t.Parallel()
	const lines = "{\"v\":1}\n{\"v\":2}\n{\"v\":3}\n"
	dir := write(t, map[string]string{"a.jsonl": lines, "b.jsonl": lines})
	s := open(t, dir, "").Select("v")
	from := func(c *dataset.Chunk) error {
		for _, err := range s.Cut(t.Context(), dataset.CutOptions{MaxRows: 2, MinRows: 2, From: c}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	second := cut(t, s, dataset.CutOptions{MaxRows: 2, MinRows: 2})[2] // of b.jsonl
	if err := from(second); err != nil {
		t.Error(err)
	}
	other := *second
	other.Sum = strings.Repeat("0", 32)
	if err := from(&other); !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), "rows 4 to 5") {
		t.Errorf("another sum: %v", err)
	}
	other = *second
	other.Columns = "x"
	if err := from(&other); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "other columns") {
		t.Errorf("other columns: %v", err)
	}
	put(t, filepath.Join(dir, "b.jsonl"), lines+lines)
	if err := from(second); !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), "b.jsonl") {
		t.Errorf("a longer file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "b.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := from(second); !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a file that is gone: %v", err)
	}
}
