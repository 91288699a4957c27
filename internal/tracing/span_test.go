package tracing_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tracing"
)

// TestSpan checks intervals: of a request that is sampled later, one begun before tracing was on, and one that
// never ended.
func TestSpan(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{Level: []string{"OFF"}})
	before := tr.Begin()
	must(t, tr.Update("", map[string][]string{"trace_level": {"TIMESTAMPS"}, "trace_rate": {"1"}}))
	before.End()
	whole, open := tr.Begin(), tr.Begin()
	whole.End()
	x := tr.Sample("m", 1, "")
	before.Stamp(x, tracing.GRPCWaitReadStart, tracing.GRPCWaitReadEnd)
	open.Stamp(x, tracing.GRPCSendStart, tracing.GRPCSendEnd)
	whole.Stamp(nil, tracing.QueueStart, tracing.ComputeStart)
	whole.Stamp(x, tracing.HTTPRecvStart, tracing.HTTPRecvEnd)
	whole.Stamp(x, tracing.ComputeInputEnd, tracing.ComputeEnd)
	x.Mark(tracing.HTTPSendStart)
	x.End()
	must(t, tr.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	var got []string
	for _, m := range regexp.MustCompile(`"name":"(\w+)"`).FindAllStringSubmatch(string(b), -1) {
		got = append(got, m[1])
	}
	if diff := cmp.Diff([]string{"HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
