package conformance_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tritonRow matches a row of the page's table of Triton's own tests: family, folder, Triton's figure.
var tritonRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| L0_[^|]* \\| (\\d+) \\|")

// TestTritonTable checks that the page's figures of Triton are those that make test-triton compares with.
func TestTritonTable(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("triton/baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	var baseline struct{ Passed []string }
	if err := json.Unmarshal(content, &baseline); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, name := range baseline.Passed {
		family, _, _ := strings.Cut(name, "/")
		family, _, _ = strings.Cut(family, "[")
		want[family]++
	}
	source, err := os.ReadFile(pageSource)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, row := range tritonRow.FindAllStringSubmatch(string(source), -1) {
		if got[row[1]], err = strconv.Atoi(row[2]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("families of triton/baseline.json and of %s (-want +got):\n%s", pageSource, diff)
	}
	if all := "| all | | " + strconv.Itoa(len(baseline.Passed)) + " |"; !strings.Contains(string(source), all) {
		t.Errorf("%s lacks '%s'", pageSource, all)
	}
}
