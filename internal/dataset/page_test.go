package dataset_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

const page = "../../docs/datasets.md"

// blocks returns the examples of the page by their marks, for example "jsonl in".
func blocks(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```([a-z]+) title=\"([a-z]+)\"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found[m[1]+" "+m[2]] = m[3]
	}
	return found
}

// pageModel is the model of the page.
func pageModel() *infer.Description {
	d := model(8, port("text", tensor.Bytes, 1), port("x", tensor.FP32, 2, 2))
	d.Outputs = []infer.Port{port("label", tensor.Bytes, 1), port("score", tensor.FP32, 2)}
	return d
}

// TestPageExamples reads the examples of docs/datasets.md and writes those of results.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	examples := blocks(t)
	for format, second := range map[string]string{"jsonl": "\xff\xd8\xff", "csv": `a "dog", a bird`} {
		in, ok := examples[format+" in"]
		if !ok {
			t.Fatalf("no example of %s", format)
		}
		s := open(t, write(t, map[string]string{"a." + format: in}), "")
		b, list, tensors := inputs(t, s, pageModel())
		const x = "0000803f000020400000404000008040"
		want := fmt.Sprintf("text BYTES[2,1] %x x FP32[2,2,2] %s%s", texts("a cat", second), x, x)
		if got := show(tensors); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
		for i := range tensors {
			tensors[i].Tensor.Release()
		}
		pageResult(t, format, examples[format+" out"], b, list)
	}
}

func pageResult(t *testing.T, format, want string, b *dataset.Binder, list []*dataset.Row) {
	t.Helper()
	r, err := dataset.NewRenderer(pageModel(), &job.Spec{}, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := []infer.Named{
		named(t, "label", tensor.Bytes, texts("cat", "\xff\xd8"), 2, 1),
		named(t, "score", tensor.FP32, []byte{0xcd, 0xcc, 0xcc, 0x3d, 0x66, 0x66, 0x66, 0x3f, 0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f}, 2, 2),
	}
	o := openOutput(t, t.TempDir(), format)
	p, err := o.Part(t.Context(), "p", r.Columns())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Render(out, list, func(row *dataset.Row, cells []dataset.Cell) error { return p.Write(row.Number, cells) }); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i].Tensor.Release()
	}
	if _, err := p.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := o.Get(t.Context(), "p."+format)
	if d := cmp.Diff(want, string(got)); d != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", format, err, d)
	}
}

// TestPageFormats compares the table of formats with the code.
func TestPageFormats(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range dataset.FormatRows() {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no row %s", want)
		}
	}
}

// TestPageNumPy runs the example of arrays.
func TestPageNumPy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(preparedtest.Runtime(t, "python"), "-c", blocks(t)["python npz"])
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := open(t, filepath.Join(dir, "in.npz"), "")
	if got := columnsOf(t, s); got != "x:5 FP32[2 2]; " || len(read(t, s, dataset.CutOptions{})) != 100 {
		t.Errorf("columns %s", got)
	}
}
