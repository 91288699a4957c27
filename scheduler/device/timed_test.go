package device_test

import (
	"testing"

	"github.com/tutti-server/tutti/scheduler/device"
)

// sharedModel is a model in a simulation: its batches take a time, and it has requests from one time to another.
type sharedModel struct {
	limiter  *device.Limiter
	takes    int64
	from, to int64
	wants    bool  // it has asked and not been admitted
	asked    int64 // when
	used     int64 // time that it executed
	runs     int
	longest  int64 // its longest wait
	device   int64 // what the device takes for a batch, which is known one batch later; 0: takes
}

// simulate executes models on a device for a time, one batch at a time, on a clock of its own.
func simulate(t *testing.T, span int64, priorities []uint32, models []*sharedModel) {
	t.Helper()
	now := int64(0)
	a := device.New(device.Settings{Executions: 1, Clock: func() int64 { return now }})
	var ready *sharedModel
	for i, m := range models {
		g, err := a.Register([]device.Demand{{Priority: priorities[i]}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		m.limiter = g.Limiters[0]
	}
	for now < span {
		for _, m := range models {
			if !m.wants && m != ready && now >= m.from && now < m.to {
				m.wants, m.asked = true, now
				if m.limiter.Acquire(func() { ready = m }) {
					ready = m
				}
			}
		}
		if ready == nil {
			now++
			continue
		}
		m := ready
		ready = nil
		m.wants, m.longest = false, max(m.longest, now-m.asked)
		now += m.takes
		m.used, m.runs = m.used+m.takes, m.runs+1
		if m.device > 0 && m.runs > 1 {
			m.limiter.Took(m.device)
		}
		if m.wants, m.asked = now >= m.from && now < m.to, now; !m.wants {
			m.limiter.Release() // may make another one ready
		} else if m.limiter.Reacquire() {
			ready = m
		}
	}
}

// TestShareByTime checks that models share a device by the time that their batches take and by priority, and that none waits for long.
func TestShareByTime(t *testing.T) {
	t.Parallel()
	const ms, span = 1000, 2000 * 1000
	always := func(takes int64) *sharedModel { return &sharedModel{takes: takes, to: span} }
	for name, tc := range map[string]struct {
		priorities []uint32
		models     []*sharedModel
		shares     []float64
	}{
		"equal priorities":         {[]uint32{1, 1}, []*sharedModel{always(10 * ms), always(ms)}, []float64{0.5, 0.5}},
		"the big one half as much": {[]uint32{2, 1}, []*sharedModel{always(10 * ms), always(ms)}, []float64{1.0 / 3, 2.0 / 3}},
		"three":                    {[]uint32{1, 1, 4}, []*sharedModel{always(7 * ms), always(2 * ms), always(3 * ms)}, []float64{4.0 / 9, 4.0 / 9, 1.0 / 9}},
	} {
		simulate(t, span, tc.priorities, tc.models)
		for i, m := range tc.models {
			if share := float64(m.used) / span; share < tc.shares[i]-0.02 || share > tc.shares[i]+0.02 {
				t.Errorf("%s: model %d has %.3f of the device, want %.3f", name, i, share, tc.shares[i])
			}
		}
	}
}

// TestIdleModelWaitsForOneBatch checks that a small model of high priority that comes and goes waits for one batch of a large one at most,
// and that it does not catch up for the time in which it had no requests.
func TestIdleModelWaitsForOneBatch(t *testing.T) {
	t.Parallel()
	const ms, span = 1000, 1000 * 1000
	big := &sharedModel{takes: 20 * ms, to: span}
	small := &sharedModel{takes: ms, from: 500 * ms, to: span}
	simulate(t, span, []uint32{8, 1}, []*sharedModel{big, small})
	if small.longest > 20*ms {
		t.Errorf("the small model waited %d us, want 20 ms at most", small.longest)
	}
	if big.runs < 25+2 {
		t.Errorf("the big model executed %d times: the small one caught up for its idle time", big.runs)
	}
}

// TestShareByDeviceTime has the host execute the batches of two models in the same time, while the device takes ten times as long for one
// of them: that one executes a tenth as often.
func TestShareByDeviceTime(t *testing.T) {
	t.Parallel()
	const ms, span = 1000, 2000 * 1000
	big := &sharedModel{takes: ms, device: 10 * ms, to: span}
	small := &sharedModel{takes: ms, device: ms, to: span}
	simulate(t, span, []uint32{1, 1}, []*sharedModel{big, small})
	if ratio := float64(small.runs) / float64(big.runs); ratio < 9.5 || ratio > 10.5 {
		t.Errorf("%d executions of the big model and %d of the small one", big.runs, small.runs)
	}
}
