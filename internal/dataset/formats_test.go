package dataset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// describe prints columns.
func describe(columns []dataset.Column) string {
	var b strings.Builder
	for i := range columns {
		c := &columns[i]
		fmt.Fprintf(&b, "%s:%d", c.Name, c.Kind)
		if c.DType != tensor.Invalid {
			fmt.Fprintf(&b, " %s%v", c.DType, c.Shape)
		}
		if c.Sample != "" {
			b.WriteString(" " + c.Sample)
		}
		b.WriteString("; ")
	}
	return b.String()
}

func columnsOf(tb testing.TB, s *dataset.Set) string {
	tb.Helper()
	columns, err := s.Columns(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return describe(columns)
}

// cells returns what the rows of a dataset have in some columns, without their places.
func cells(tb testing.TB, s *dataset.Set, o dataset.CutOptions) (list []string) {
	tb.Helper()
	for _, r := range read(tb, s, o) {
		f := strings.SplitN(r, " ", 3)
		list = append(list, f[2])
	}
	return list
}

// TestPandasText reads what pandas wrote as text, whole and in chunks.
func TestPandasText(t *testing.T) {
	t.Parallel()
	want := []string{
		"plain 0 0.1 True", "with, comma 10000000000 -2.5 False", "a \"quote\" 20000000000 1e+300 True", "two\nlines 30000000000 1e-07 True",
		" 40000000000 0.0 False", "é😀 50000000000 -0.0 False", "  spaces   60000000000 123456.789 True",
	}
	for _, name := range []string{"pandas.csv", "pandas.csv.gz", "pandas.tsv"} {
		s := open(t, "testdata/"+name, "")
		if got := columnsOf(t, s); got != "text:3; n:3; x:3; ok:3; " || s.Format() != "csv" {
			t.Errorf("%s: %s, columns %s", name, s.Format(), got)
		}
		for _, o := range []dataset.CutOptions{{}, {MaxRows: 1}, {MinRows: 2, MaxRows: 2}, {MinRows: 5, MaxRows: 5}} {
			if d := cmp.Diff(want, cells(t, s, o)); d != "" {
				t.Errorf("%s, %+v (-want +got):\n%s", name, o, d)
			}
		}
		rows, err := s.Head(t.Context(), 7)
		if err != nil || rows[4].Place() != name+":7" { // behind the header and a row of two lines
			t.Errorf("%s: %s, %v", name, rows[4].Place(), err)
		}
	}
	if got := cells(t, open(t, "testdata/pandas.csv", "").Select("x", "none", "text"), dataset.CutOptions{MaxRows: 2}); got[1] != "-2.5 - with, comma" {
		t.Errorf("selected: %s", got[1])
	}
	got := cells(t, open(t, "testdata/pandas.jsonl", ""), dataset.CutOptions{MaxRows: 3})
	if len(got) != 7 || got[3] != `"two\nlines" 30000000000 0.0000001 true` {
		t.Errorf("pandas.jsonl: %q", got)
	}
}

// TestCSVFaults checks the errors of rows, which do not end the file.
func TestCSVFaults(t *testing.T) {
	t.Parallel()
	text := "\xef\xbb\xbfa,\"b\"\"c\"\r\n1,2\r\n\r\n3\n4,5,6\n7 \"x\",8\n\"9\"x,0\n\"a\nb\"\"\",\"\"\n\"é,\n\",\n10,\"open\n11,12\n"
	want := []string{
		"0 a.csv:2 1 2", "1 a.csv:4 error expected 2 fields, as in the header, found 1", "2 a.csv:5 error expected 2 fields, as in the header, found 3",
		"3 a.csv:6 error field 1 has a quote at byte 3, but does not start with one; a quote is doubled in a field in quotes",
		"4 a.csv:7 error field 1: expected ',' behind the closing quote, found 'x'", "5 a.csv:8 a\nb\" ", "6 a.csv:10 é,\n ",
		"7 a.csv:12 error field 2 starts with a quote and does not end",
	}
	s := open(t, write(t, map[string]string{"a.csv": text}), "").Select("a", "b\"c")
	for _, o := range []dataset.CutOptions{{}, {MaxRows: 1}, {MinRows: 3, MaxRows: 3}} {
		if d := cmp.Diff(want, read(t, s, o)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	for text, want := range map[string]string{"": "expected a header with the names of the columns, found an empty file", "a,b,a\n": "the header has two columns 'a'", "a,\"b\n": "the header: field 2 starts with a quote and does not end"} {
		_, err := open(t, write(t, map[string]string{"x.csv": text}), "").Columns(t.Context())
		if status.CodeOf(err) != status.InvalidArg || !strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), "x.csv") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestCompressed reads a file that pandas did not write, and one that is broken.
func TestCompressed(t *testing.T) {
	t.Parallel()
	s := open(t, "testdata/pandas.jsonl.zst", "").Select("n")
	if got := read(t, s, dataset.CutOptions{MaxRows: 1}); len(got) != 7 || got[6] != "6 pandas.jsonl.zst:7 60000000000" {
		t.Errorf("pandas.jsonl.zst: %q", got)
	}
	for _, name := range []string{"a.jsonl.zst", "a.jsonl.gz"} {
		_, err := open(t, write(t, map[string]string{name: "no compressed data"}), "").Columns(t.Context())
		if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), name+"': cannot be decompressed: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestArrays reads what numpy wrote.
func TestArrays(t *testing.T) {
	t.Parallel()
	want := []string{
		"FP16[2]00000034 FP32[2 2]000000000000803f0000004000004040 FP64[]000000000000f03f BOOL[]01 INT8[]ff UINT64[]0100000000000000 INT32[2]01000000feffffff FP32[0]",
		"FP16[2]0038003a FP32[2 2]000080400000a0400000c0400000e040 FP64[]9a9999999999b93f BOOL[]00 INT8[]02 UINT64[]ffffffffffffffff INT32[2]01000000feffffff FP32[0]",
		"FP16[2]003c003d FP32[2 2]0000004100001041000020410000304 1 FP64[]00000000000000c0 BOOL[]01 INT8[]03 UINT64[]0300000000000000 INT32[2]01000000feffffff FP32[0]",
	}
	want[2] = strings.ReplaceAll(want[2], "304 1", "3041")
	for _, name := range []string{"arrays.npz", "compressed.npz"} {
		s := open(t, "testdata/"+name, "")
		if got := columnsOf(t, s); got != "f2:5 FP16[2]; f4:5 FP32[2 2]; f8be:5 FP64[]; b:5 BOOL[]; i1:5 INT8[]; u8:5 UINT64[]; i4be:5 INT32[2]; empty:5 FP32[0]; " {
			t.Errorf("columns %s", got)
		}
		for _, o := range []dataset.CutOptions{{}, {MaxRows: 1}, {MinRows: 2, MaxRows: 2}} {
			if d := cmp.Diff(want, cells(t, s, o)); d != "" {
				t.Errorf("%s, %+v (-want +got):\n%s", name, o, d)
			}
		}
	}
	if got := read(t, open(t, "testdata/single.npy", ""), dataset.CutOptions{MaxRows: 1}); got[2] != "2 single.npy:2 FP32[2 2]00000041000010410000204100003041" {
		t.Errorf("single.npy: %q", got)
	}
	if got := cells(t, open(t, "testdata/zip64.npz", "").Select("i1"), dataset.CutOptions{MaxRows: 2}); strings.Join(got, " ") != "INT8[]ff INT8[]02 INT8[]03" {
		t.Errorf("zip64.npz: %q", got)
	}
}

func TestArrayRefusals(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"strings":  "unsupported: array 'words' has the type '<U2' (strings); expected numbers or booleans",
		"bytes":    "unsupported: array 'words' has the type '|S2' (byte strings)",
		"objects":  "unsupported: array 'things' has the type '|O' (Python objects)",
		"complex":  "unsupported: array 'z' has the type '<c8' (complex numbers)",
		"dates":    "unsupported: array 'd' has the type '<M8[s]' (dates)",
		"fields":   "unsupported: array 'f' is a structured array",
		"fortran":  "array 'x' is in Fortran order, in which rows are not together; save numpy.ascontiguousarray of it",
		"scalar":   "array 'x' is a single value, and has no axis for the rows",
		"missing2": "not a zip file of arrays",
	} {
		path := "testdata/" + name + ".npz"
		if name == "missing2" {
			path = write(t, map[string]string{"missing2.npz": "no zip"}) + "/missing2.npz"
		}
		_, err := open(t, path, "").Columns(t.Context())
		if code := status.CodeOf(err); code != status.Unsupported && code != status.InvalidArg || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name+".npz") {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	if got := cells(t, open(t, "testdata/strings.npz", "").Select("x"), dataset.CutOptions{}); len(got) != 2 {
		t.Errorf("an array beside strings: %q", got)
	}
	_, err := open(t, "testdata/uneven.npz", "").Head(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "array 'a' has 2 rows, and 'b' has 3") {
		t.Errorf("uneven: %v", err)
	}
}

// TestParquet reads what pyarrow wrote.
func TestParquet(t *testing.T) {
	t.Parallel()
	s := open(t, "testdata/types.parquet", "")
	want := "i8:5 INT8[]; i16:5 INT16[]; i32:5 INT32[]; i64:5 INT64[]; u8:5 UINT8[]; u16:5 UINT16[]; u32:5 UINT32[]; u64:5 UINT64[]; " +
		"f16:5 FP16[]; f32:5 FP32[]; f64:5 FP64[]; b:5 BOOL[]; s:4 BYTES[]; raw:4 BYTES[]; fixed:4 BYTES[]; ts:5 INT64[]; date:5 INT32[]; " +
		"list:5 FP32[-1]; matrix:5 INT64[-1 -1]; words:5 BYTES[-1]; three:5 INT16[-1]; struct:0 structs or maps; dec:0 decimals; dict:4 BYTES[]; "
	if d := cmp.Diff(want, columnsOf(t, s)); d != "" {
		t.Errorf("columns (-want +got):\n%s", d)
	}
	for _, tt := range []struct{ columns, want string }{
		{"i8 i16 i32", "INT8[]01 INT16[]0100 INT32[]01000000|INT8[]80 INT16[]feff INT32[]feffffff|INT8[]7f INT16[]0300 INT32[]03000000|INT8[]00 INT16[]0400 INT32[]04000000|INT8[]05 INT16[]0500 INT32[]05000000"},
		{"u8 u16 u32", "UINT8[]01 UINT16[]0100 UINT32[]01000000|UINT8[]ff UINT16[]ffff UINT32[]ffffffff|UINT8[]03 UINT16[]0300 UINT32[]03000000|UINT8[]04 UINT16[]0400 UINT32[]04000000|UINT8[]05 UINT16[]0500 UINT32[]05000000"},
		{"i64", "INT64[]0100000000000000|INT64[]feffffffffffffff|INT64[]0300000000000000|null|INT64[]0000000000000040"},
		{"u64 f16", "UINT64[]0100000000000000 FP16[]003c|UINT64[]ffffffffffffffff FP16[]662e|UINT64[]0300000000000000 FP16[]00c0|UINT64[]0400000000000000 FP16[]0000|UINT64[]0500000000000000 FP16[]ff7b"},
		{"f32 b", "FP32[]0000803f BOOL[]01|FP32[]cdcccc3d BOOL[]00|FP32[]000000c0 null|null BOOL[]01|FP32[]e6b1617f BOOL[]00"},
		{"s raw fixed dict", "a \xff ab p|é  cd q|\x20\x00\x01 ef p|null null gh p|e z ij q"},
		{"ts date", "INT64[]0000000000000000 INT32[]00000000|INT64[]0100000000000000 INT32[]01000000|INT64[]0200000000000000 INT32[]02000000|INT64[]0300000000000000 INT32[]03000000|INT64[]00401e18240a0600 INT32[]04000000"},
		{"list", "FP32[2]0000803f00000040|FP32[1]00004040|FP32[0]|null|FP32[3]000080400000a0400000c040"},
		{"matrix", "INT64[2 2]0100000000000000020000000000000003000000000000000400000000000000|INT64[1 2]05000000000000000600000000000000|INT64[0]|[[7],[]]|[[8,null]]"},
		{"words three", "BYTES[2]01000000610100000062 INT16[3]010002000300|BYTES[1]0100000063 INT16[3]010002000300|BYTES[0] INT16[3]010002000300|BYTES[2]0000000002000000c3a9 INT16[3]010002000300|null INT16[3]010002000300"},
	} {
		list := strings.Split(tt.want, "|")
		if tt.columns == "s raw fixed dict" {
			list[2] = " \x00\x01 ef p"
		}
		for _, o := range []dataset.CutOptions{{}, {MaxRows: 1}, {MinRows: 2, MaxRows: 2}, {MinRows: 4, MaxRows: 4}} {
			if d := cmp.Diff(list, cells(t, s.Select(strings.Fields(tt.columns)...), o)); d != "" {
				t.Errorf("%s, %+v (-want +got):\n%s", tt.columns, o, d)
			}
		}
	}
	for column, want := range map[string]string{"struct": "column 'struct' has structs or maps", "dec": "column 'dec' has decimals"} {
		if _, err := s.Select(column).Head(t.Context(), 1); status.CodeOf(err) != status.Unsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", column, err)
		}
	}
	if got := cells(t, open(t, "testdata/v2.parquet", "").Select("list", "s"), dataset.CutOptions{MaxRows: 1}); got[4] != "FP32[3]000080400000a0400000c040 e" || len(got) != 5 {
		t.Errorf("v2.parquet: %q", got)
	}
	if got := cells(t, open(t, "testdata/pandas.parquet", "").Select("text", "ok"), dataset.CutOptions{MaxRows: 4}); got[3] != "two\nlines BOOL[]01" || len(got) != 7 {
		t.Errorf("pandas.parquet: %q", got)
	}
	_, err := open(t, write(t, map[string]string{"x.parquet": "no parquet"}), "").Columns(t.Context())
	if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "x.parquet': not a valid Parquet file: ") {
		t.Errorf("a broken file: %v", err)
	}
}

// TestFolders reads files that are one row each.
func TestFolders(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"cats/1.PNG": "\x89PNG", "cats/2.jpg": "\xff\xd8", "dogs/x.gif": "", "readme.txt": "hello\n", "a.md": "# A", "data.bin": "x"})
	images := open(t, dir, "images").Select("path", "image")
	want := []string{"0 cats/1.PNG cats/1.PNG \x89PNG", "1 cats/2.jpg cats/2.jpg \xff\xd8", "2 dogs/x.gif dogs/x.gif "}
	if d := cmp.Diff(want, read(t, images, dataset.CutOptions{MaxRows: 2})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	texts := open(t, dir, "texts")
	if d := cmp.Diff([]string{"0 a.md # A a.md", "1 readme.txt hello\n readme.txt"}, read(t, texts, dataset.CutOptions{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := columnsOf(t, images); got != "image:4; path:4; " {
		t.Errorf("columns %s", got)
	}
	if s := open(t, dir+"/cats", ""); s.Format() != "images" {
		t.Errorf("the format of images is %s", s.Format())
	}
	_, err := open(t, dir, "").Head(t.Context(), 10)
	if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "has files of several formats, texts and 'cats/1.PNG'") && !strings.Contains(err.Error(), "several formats") {
		t.Errorf("several formats: %v", err)
	}
	for range read(t, open(t, dir+"/data.bin", "texts"), dataset.CutOptions{}) {
		return
	}
	t.Error("a file whose format is given is not read")
}

// TestBindFormats binds the cells of other formats than JSON.
func TestBindFormats(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"a.csv": "f,i,b,s,list,bad\n 1.5 ,+7,TRUE,\" a \",\"[[1,2],[3,4]]\",1.5\n,1,0,,[],x\n"})
	for _, tt := range []struct {
		path, column string
		port         infer.Port
		row          int
		want         string
	}{
		{"a.csv", "f", port("X", tensor.FP32, 1), 0, "X FP32[1,1] 0000c03f"},
		{"a.csv", "i", port("X", tensor.Int8, 1), 0, "X INT8[1,1] 07"},
		{"a.csv", "b", port("X", tensor.Bool, 1), 0, "X BOOL[1,1] 01"},
		{"a.csv", "b", port("X", tensor.Bool, 1), 1, "X BOOL[1,1] 00"},
		{"a.csv", "s", port("X", tensor.Bytes, 1), 0, "X BYTES[1,1] 03000000206120"},
		{"a.csv", "s", port("X", tensor.Bytes, 1), 1, "X BYTES[1,1] 00000000"},
		{"a.csv", "list", port("X", tensor.Uint8, 2, 2), 0, "X UINT8[1,2,2] 01020304"},
		{"a.csv", "list", port("X", tensor.Uint8, 2, 2), 1, "input 'X', column 'list': expected the shape [2,2], found [0]"},
		{"a.csv", "bad", port("X", tensor.Int8, 1), 0, "input 'X', column 'bad': value 1.5 is no integer"},
		{"a.csv", "bad", port("X", tensor.Int8, 1), 1, `input 'X', column 'bad': expected a number, found "x"`},
		{"a.csv", "bad", port("X", tensor.FP64, 1), 1, `input 'X', column 'bad': expected a number, found "x"`},
		{"a.csv", "f", port("X", tensor.FP32, 1), 1, "input 'X', column 'f': the column has no value"},
		{"testdata/types.parquet", "u8", port("X", tensor.Int8, 1), 1, "input 'X', column 'u8': element 0: value 255 is out of range for INT8"},
		{"testdata/types.parquet", "u8", port("X", tensor.FP16, 1), 1, "X FP16[1,1] f85b"},
		{"testdata/types.parquet", "f64", port("X", tensor.FP32, 1), 4, "input 'X', column 'f64': element 0: value 1e+308 is out of range for FP32"},
		{"testdata/types.parquet", "f64", port("X", tensor.Int64, 1), 2, "X INT64[1,1] feffffffffffffff"},
		{"testdata/types.parquet", "f64", port("X", tensor.Int64, 1), 1, "input 'X', column 'f64': element 0: value 0.1 is no integer of 64 bits"},
		{"testdata/types.parquet", "raw", port("X", tensor.Bytes, 1), 0, "X BYTES[1,1] 01000000ff"},
		{"testdata/types.parquet", "words", port("X", tensor.Bytes, -1), 0, "X BYTES[1,2] 01000000610100000062"},
		{"testdata/types.parquet", "matrix", port("X", tensor.Int32, -1, 2), 0, "X INT32[1,2,2] 01000000020000000300000004000000"},
		{"testdata/types.parquet", "matrix", port("X", tensor.Int32, -1, 2), 2, "X INT32[1,0,2]"},
		{"testdata/types.parquet", "matrix", port("X", tensor.Int32, -1, -1), 3, "input 'X', column 'matrix': the list is ragged: a list has 0 elements, and one before it has 1"},
		{"testdata/types.parquet", "three", port("X", tensor.BF16, 3), 0, "X BF16[1,3] 803f00404040"},
		{"testdata/arrays.npz", "f4", port("X", tensor.FP32, 2, 2), 1, "X FP32[1,2,2] 000080400000a0400000c0400000e040"},
		{"testdata/arrays.npz", "i1", port("X", tensor.Uint8, 1), 0, "input 'X', column 'i1': element 0: value -1 is out of range for UINT8"},
	} {
		path := tt.path
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join(dir, path)
		}
		s := open(t, path, "")
		columns, err := s.Columns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := dataset.NewBinder(model(1, tt.port), &job.Spec{Columns: map[string]string{"X": tt.column}}, columns)
		if err != nil {
			t.Errorf("%s: %v", tt.column, err)
			continue
		}
		rows, err := s.Select(b.Columns()...).Head(t.Context(), tt.row+1)
		if err != nil {
			t.Fatal(err)
		}
		got, batch := "", b.NewBatch(tensor.NewPool())
		if _, err := batch.Add(rows[tt.row]); err != nil {
			got = err.Error()
		} else if in, err := batch.Inputs(); err == nil {
			got = show(in)
			in[0].Tensor.Release()
		}
		if got != tt.want {
			t.Errorf("%s row %d: got %s, want %s", tt.column, tt.row, got, tt.want)
		}
	}
}
