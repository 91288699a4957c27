package tracing_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tutti/core/tracing"
)

// TestSpan times a request before it is known to be traced, one that began before
// tracing did, and one that never ended.
func TestSpan(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{Level: []string{"OFF"}})
	before := tr.Begin()
	must(t, tr.Update("", map[string][]string{"trace_level": {"TIMESTAMPS"}, "trace_rate": {"1"}}))
	before.End()
	whole, open := tr.Begin(), tr.Begin()
	whole.End()
	x := tr.Sample("m", 1, "")
	before.Stamp(x, "A", "B")
	open.Stamp(x, "C", "D")
	whole.Stamp(nil, "E", "F")
	whole.Stamp(x, "G", "H")
	whole.Stamp(x, "I", "J")
	x.Mark("K")
	x.End()
	must(t, tr.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	var got []string
	for _, m := range regexp.MustCompile(`"name":"(.)"`).FindAllStringSubmatch(string(b), -1) {
		got = append(got, m[1])
	}
	if diff := cmp.Diff([]string{"G", "H", "K"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
