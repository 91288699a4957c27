package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// write makes files in a new folder and returns it.
func write(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		put(tb, filepath.Join(dir, name), text)
	}
	return dir
}

func put(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func open(tb testing.TB, uri, format string) *dataset.Set {
	tb.Helper()
	s, err := dataset.Open(tb.Context(), job.Place{URI: uri, Format: format}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// cut returns all chunks.
func cut(tb testing.TB, s *dataset.Set, o dataset.CutOptions) (list []*dataset.Chunk) {
	tb.Helper()
	for c, err := range s.Cut(tb.Context(), o) {
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// text prints a row.
func text(r *dataset.Row) string {
	s := fmt.Sprintf("%d %s", r.Number, r.Place())
	if r.Err != nil {
		return s + " error " + r.Err.Error()
	}
	for _, c := range r.Cells {
		switch c.Kind {
		case dataset.Missing:
			s += " -"
		case dataset.Null:
			s += " null"
		case dataset.Tensor:
			s += fmt.Sprintf(" %s%v%x", c.DType, c.Shape, c.Data)
		default:
			s += " " + string(c.Data)
		}
	}
	return s
}

// read returns the rows of all chunks.
func read(tb testing.TB, s *dataset.Set, o dataset.CutOptions) (list []string) {
	tb.Helper()
	next := int64(0)
	for _, c := range cut(tb, s, o) {
		if c.First != next || c.Rows > o.MaxRows && o.MaxRows > 0 {
			tb.Fatalf("chunk %d has rows from %d on, %d of them; want from %d on", c.Number, c.First, c.Rows, next)
		}
		next += c.Rows
		n := int64(0)
		for r, err := range s.Read(tb.Context(), c) {
			if err != nil {
				tb.Fatal(err)
			}
			list = append(list, text(r))
			n++
		}
		if n != c.Rows {
			tb.Fatalf("chunk %d has %d rows, want %d", c.Number, n, c.Rows)
		}
	}
	return list
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"in/a.jsonl":   "\xef\xbb\xbf{\"id\": 1, \"x\": [1, 2.0]}\r\n\n  {\"x\":[3,4],\"id\":null,\"other\":{}}\n",
		"in/b.jsonl":   "{\"id\":\"q\\u00e9\",\"\\u0078\":[5]}\n{\"id\":1 \"x\":2}\n[1]\n{\"id\":2}{\n\"\xff\"\n{\"id\":7,\"id\":8}",
		"in/_SUCCESS":  "",
		"in/.b.jsonl":  "{}",
		"in/notes.txt": "not read",
	})
	want := []string{
		`0 a.jsonl:1 1 [1, 2.0]`,
		`1 a.jsonl:3 null [3,4]`,
		`2 b.jsonl:1 "q\u00e9" [5]`,
		`3 b.jsonl:2 error not JSON: expected ',' or '}' at byte 9, found '"'`,
		`4 b.jsonl:3 error expected an object, for example {"text": "..."}, found a list`,
		`5 b.jsonl:4 error not JSON: expected the end of the line at byte 9, found '{'`,
		`6 b.jsonl:5 error not UTF-8`,
		`7 b.jsonl:6 8 -`,
	}
	s := open(t, dir+"/in", "jsonl").Select("id", "x")
	for _, o := range []dataset.CutOptions{{}, {MaxRows: 1}, {MinRows: 2, MaxRows: 2}, {MaxBytes: 1}, {MaxRows: 3}} {
		if d := cmp.Diff(want, read(t, s, o)); d != "" {
			t.Errorf("%+v (-want +got):\n%s", o, d)
		}
	}
	columns, err := s.Columns(t.Context())
	if err != nil || len(columns) != 3 || columns[1].Name != "x" || columns[1].Sample != "a number" {
		t.Errorf("columns %+v, %v", columns, err)
	}
	rows, err := s.Head(t.Context(), 3)
	if err != nil || len(rows) != 3 || text(rows[2]) != want[2] {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestKeys checks what changes the key of a row and what does not.
func TestKeys(t *testing.T) {
	t.Parallel()
	same := []string{
		`{"a": 1.50, "b": {"x":1,"y":[1e2]}, "c": "é/"}`,
		`{"c":"\u00e9\/","b":{"y":[ 100 ],"x":1.0},"a":15e-1,"d":null,"unused":1}`,
	}
	other := []string{`{"a":1.5,"b":{"x":1,"y":[100]},"c":"e/"}`, `{"a":1.5}`, `{"b":1.5}`, `{"a":"1.5"}`, `{"a":[1.5]}`, `{`, `{]`, `{"a":12345678901234567890}`, `{"a":12345678901234567891}`}
	dir := write(t, map[string]string{"a.jsonl": strings.Join(append(same, other...), "\n")})
	s := open(t, dir, "").Select("a", "b", "c", "d")
	seen := map[dataset.Key]int64{}
	for _, c := range cut(t, s, dataset.CutOptions{}) {
		for r, err := range s.Read(t.Context(), c) {
			if err != nil {
				t.Fatal(err)
			}
			first, ok := seen[r.Key]
			if ok != (r.Number == 1) || first != 0 {
				t.Errorf("row %d has the key of row %d", r.Number, first)
			}
			seen[r.Key] = r.Number
		}
	}
}

// TestCutProperty cuts random files into chunks of random bounds.
func TestCutProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		files, want := map[string]string{}, []string{}
		for f := range random.IntN(4) {
			name, text := fmt.Sprintf("%d.jsonl", f), []byte{}
			for line := range random.IntN(300) {
				if random.IntN(9) == 0 {
					text = append(text, '\n')
					continue
				}
				value := strings.Repeat("x", random.IntN(200))
				text = fmt.Appendf(text, "{\"v\": \"%s\"}\n", value)
				want = append(want, fmt.Sprintf("%d %s:%d \"%s\"", len(want), name, line+1, value))
			}
			files[name] = string(text)
		}
		if len(want) == 0 {
			continue
		}
		o := dataset.CutOptions{MinRows: random.Int64N(20), MaxRows: random.Int64N(100), MaxBytes: random.Int64N(5000)}
		if d := cmp.Diff(want, read(t, open(t, write(t, files), "").Select("v"), o)); d != "" {
			t.Fatalf("%+v (-want +got):\n%s", o, d)
		}
	}
}

// TestCutAgain checks that rows inserted early leave most chunks as they were.
func TestCutAgain(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "{\"v\":%d}\n", i)
	}
	lines := b.String()
	sums := map[string]bool{}
	old := cut(t, open(t, write(t, map[string]string{"a.jsonl": lines}), ""), dataset.CutOptions{MaxRows: 256})
	for _, c := range old {
		sums[c.Sum] = true
	}
	same, now := 0, cut(t, open(t, write(t, map[string]string{"a.jsonl": "{\"v\":-1}\n" + lines}), ""), dataset.CutOptions{MaxRows: 256})
	for _, c := range now {
		if sums[c.Sum] {
			same++
		}
	}
	if len(now) < 20_000/256 || same < len(now)-8 {
		t.Errorf("%d of %d chunks are the same", same, len(now))
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"a.jsonl": "{\"v\":1}\n", "b.jsonl": "{\"v\":2}\n"})
	s := open(t, dir, "").Select("v")
	list := cut(t, s, dataset.CutOptions{MaxRows: 1})
	failed := func(c *dataset.Chunk) error {
		for _, err := range s.Read(t.Context(), c) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	put(t, dir+"/a.jsonl", "{\"v\":10}\n")
	if err := os.Remove(dir + "/b.jsonl"); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a.jsonl", "b.jsonl"} {
		if err := failed(list[i]); !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	put(t, dir+"/a.jsonl", "{\"v\":1}\n")
	tag := cut(t, s, dataset.CutOptions{})[0].Slices[0].Tag
	list[0].Slices[0].Tag = tag
	if err := failed(list[0]); err != nil {
		t.Error(err)
	}
	list[0].Sum = strings.Repeat("0", 32)
	if err := failed(list[0]); !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), "rows 0 to 0") {
		t.Errorf("another sum: %v", err)
	}
	s = s.Select("w")
	if err := failed(list[0]); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "other columns") {
		t.Errorf("other columns: %v", err)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"x/1/a.jsonl": "{\"v\":1}", "x/1/b.jsonl": "{\"v\":2}", "x/2/a.jsonl": "{\"v\":3}", "x/2/.h/a.jsonl": "{\"v\":4}",
		"y/a.jsonl": "{}", "y/b.csv": "a\n1\n", "z/a.bin": "", "z/b.txt.bak": "", "w[1].jsonl": "{\"v\":5}", "e/.gitkeep": "",
	})
	for uri, want := range map[string]string{
		"x":                "0 1/a.jsonl:1 1,1 1/b.jsonl:1 2,2 2/a.jsonl:1 3",
		"x/":               "0 1/a.jsonl:1 1,1 1/b.jsonl:1 2,2 2/a.jsonl:1 3",
		"x/*/a.jsonl":      "0 1/a.jsonl:1 1,1 2/a.jsonl:1 3",
		"x/[2-9]":          "0 2/a.jsonl:1 3",
		"x/1/b.jsonl":      "0 b.jsonl:1 2",
		"w[1].jsonl":       "0 w[1].jsonl:1 5",
		"x/?/a.*":          "0 1/a.jsonl:1 1,1 2/a.jsonl:1 3",
		"../" + "NAME/x/1": "0 a.jsonl:1 1,1 b.jsonl:1 2",
	} {
		uri = strings.ReplaceAll(uri, "NAME", filepath.Base(dir))
		if got := strings.Join(read(t, open(t, dir+"/"+uri, "").Select("v"), dataset.CutOptions{}), ","); got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
	for _, tt := range []struct {
		uri, format string
		code        status.Code
		want        string
	}{
		{"", "", status.InvalidArg, "the dataset has no uri"},
		{dir + "/none", "", status.NotFound, "none"},
		{dir + "/none/*.jsonl", "", status.NotFound, "none"},
		{dir + "/x/*.jsonl", "", status.NotFound, "no file matches"},
		{dir + "/e", "", status.NotFound, "no file matches"},
		{dir + "/z", "", status.InvalidArg, "says no format; give one of "},
		{dir + "/z", "jsonl", status.NotFound, "has no file of the format jsonl (.jsonl, .ndjson); it has 'z/b.txt.bak'"},
		{dir + "/x", "json", status.Unsupported, "unsupported: format 'json' of the dataset"},
		{"hdfs://x/y", "", status.Unsupported, "unsupported: 'hdfs://x/y' has the scheme 'hdfs'"},
		{"s3://", "", status.InvalidArg, "names no bucket"},
	} {
		_, err := dataset.Open(t.Context(), job.Place{URI: tt.uri, Format: tt.format}, nil)
		if status.CodeOf(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %v %s", tt.uri, err, tt.code, tt.want)
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	s := open(t, write(t, map[string]string{"a.jsonl": strings.Repeat("{\"v\":1}\n", 1000)}), "").Select("v")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for c, err := range s.Cut(ctx, dataset.CutOptions{MaxRows: 10}) {
		if last = err; c != nil && c.Number == 3 {
			cancel()
		}
	}
	if status.CodeOf(last) != status.Cancelled {
		t.Errorf("got %v", last)
	}
}
