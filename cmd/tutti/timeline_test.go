package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/inspect"
)

// TestTimeline checks that the timeline has each batch of the traces, in the lane of its instance and at its time, that no instance of an ONNX model
// executes two batches at once (those of native steps may), and that all executions are known where each request is examined.
func TestTimeline(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	began := time.Now().UnixMicro()
	a := serve(t, "--model-repository="+filepath.Join(examplesDir, "digits"), "--trace-store-every=1", "--trace-store-rate=0")
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	list, err := cli.ReadExamples(filepath.Join(examplesDir, "digits"))
	if err != nil {
		t.Fatal(err)
	}
	const requests = 60
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < requests; i += 4 {
				if _, err := c.Infer(context.Background(), &list[0].Request); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var traces inspect.TraceList
	for len(traces.Traces) < requests { // the trace of the last request may not have ended yet
		dashboardAPI(t, a, "traces?model=digits&limit=100", &traces)
	}
	var v inspect.TimelineView
	for v.Share == nil || v.Share.Known == 0 || v.Share.Known < v.Share.Executed { // the counters are read once a second
		v = inspect.TimelineView{}
		dashboardAPI(t, a, fmt.Sprintf("timeline?from_us=%d&to_us=%d&limit=4096", began, time.Now().UnixMicro()), &v)
	}
	if len(v.Runs) != int(v.Share.Known) || v.OldestUs < began || v.More != 0 {
		t.Errorf("%d runs, %+v, the oldest ended at %d", len(v.Runs), v.Share, v.OldestUs)
	}
	runs, ends := map[uint64]inspect.RunView{}, make([]int64, len(v.Lanes))
	for _, r := range v.Runs {
		runs[r.ID] = r
		if r.StartNs < ends[r.Lane] && v.Lanes[r.Lane].Model == "digits_cnn" {
			t.Errorf("instance %+v begins batch %d at %d, before the end of another at %d", v.Lanes[r.Lane], r.ID, r.StartNs, ends[r.Lane])
		}
		ends[r.Lane] = r.StartNs + r.InputNs + r.InferNs + r.OutputNs
	}
	for i := range traces.Traces {
		var x inspect.TraceView
		dashboardAPI(t, a, "traces/"+traces.Traces[i].ID, &x)
		for _, s := range x.Spans {
			r, ok := runs[s.Batch]
			if !ok {
				t.Errorf("batch %d of %s is missing", s.Batch, s.Model)
				continue
			}
			lane := v.Lanes[r.Lane]
			start, took, want := s.StartNs, r.InferNs, s.InferEndNs-s.InputEndNs
			if s.DeviceEndNs > 0 { // what a device executed is shown when it did
				start, took, want = s.DeviceStartNs, r.InputNs+r.InferNs+r.OutputNs, s.DeviceEndNs-s.DeviceStartNs
			}
			if lane != (inspect.LaneView{Model: s.Model, Version: s.Version, Instance: s.Instance, Place: s.Place}) || r.Rows != s.BatchRows || took != want {
				t.Errorf("run %+v of %+v is not that of step %+v", r, lane, s)
			}
			const rounding = 2000 // the begin of a trace is in microseconds
			if at := (x.StartUs-v.FromUs)*1000 + start; r.StartNs < at-rounding || r.StartNs > at+rounding {
				t.Errorf("run %+v begins %d ns from the step", r, r.StartNs-at)
			}
		}
	}
	one := v.Runs[len(v.Runs)/2]
	from := v.FromUs + one.StartNs/1000
	var few inspect.TimelineView
	dashboardAPI(t, a, fmt.Sprintf("timeline?from_us=%d&to_us=%d&model=digits_cnn&limit=1", from, from+1), &few)
	if len(few.Runs) > 1 || len(few.Lanes) > 1 {
		t.Errorf("the timeline of a microsecond of one model has %+v", few)
	}
}
