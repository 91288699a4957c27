package identity

import (
	"context"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
)

// The activities that a sampled request reports, with the names of NVIDIA's backend.
const (
	activity       = "CUSTOM_ACTIVITY"
	singleActivity = "CUSTOM_SINGLE_ACTIVITY"
	activityTime   = 100 * time.Millisecond
)

// report adds to the trace of each sampled request one span, one single activity and the configured nested spans.
// Each span takes a tenth of a second.
func (p *params) report(ctx context.Context, reqs []backends.Request) error {
	for i := range reqs {
		if !reqs[i].Trace.Sampled() {
			continue
		}
		if err := p.reportOne(ctx, &reqs[i], reqs); err != nil {
			return err
		}
	}
	return nil
}

func (p *params) reportOne(ctx context.Context, q *backends.Request, reqs []backends.Request) error {
	q.ReportActivity(activity + "_START")
	if err := pause(ctx, activityTime, reqs); err != nil {
		return err
	}
	q.ReportActivity(activity + "_END")
	q.ReportActivity(singleActivity)
	for n := range p.spans {
		q.ReportActivity(activity + strconv.Itoa(n) + "_START")
		if err := pause(ctx, activityTime, reqs); err != nil {
			return err
		}
		if n%p.frequency == 0 {
			q.ReportActivity(singleActivity)
		}
	}
	for n := p.spans - 1; n >= 0; n-- {
		q.ReportActivity(activity + strconv.Itoa(n) + "_END")
	}
	return nil
}
