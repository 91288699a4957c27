package repository_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// TestExamples checks that the golden requests of a model are examples of its inputs, and that a model without any has none.
func TestExamples(t *testing.T) {
	t.Parallel()
	const ones = `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[1,1]}],"outputs":[{"name":"OUT","datatype":"FP32","shape":[1,2],"data":[2,2]}]}`
	raw := strings.Replace(ones, `"data":[1,1]`, `"raw":"AACAPwAAgD8="`, 1)
	root := folder(t, one("m", "")+"-- m/golden/b.json --\n"+raw+"\n-- m/golden/a.json --\n"+ones+"\n-- m/golden/notes.txt --\nno request\n"+one("none", ""))
	r := newWorld(t).repo(t, root)
	got, err := r.Examples("m")
	if err != nil {
		t.Fatal(err)
	}
	tensor := []inspect.ExampleTensor{{Name: "IN", Type: "FP32", Shape: []int64{1, 2}, Raw: []byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f}}}
	if diff := cmp.Diff([]inspect.ExampleView{{Name: "a", Inputs: tensor}, {Name: "b", Inputs: tensor}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := r.Examples("none"); err != nil || len(got) != 0 {
		t.Errorf("a model without golden requests: %v, %v", got, err)
	}
	if _, err := r.Examples("gone"); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
}
