package durable

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
)

// changing is a Background in which online requests come and go between any two looks.
type changing struct{ noOnline }

func (changing) Quiet(int64) bool { return rand.IntN(2) == 0 } //nolint:gosec // a test

func (changing) Pace(int64) (ok bool, wait time.Duration) { return true, 0 }

// TestComingAndGoing checks that a job completes while online requests come and go: a unit changes between one request and pieces any number
// of times, also where only one unit may be in pieces.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.background, r.gate = changing{}, newGate(4)
	r.gate.beside = make(chan struct{}, 1)
	r.work()
	if st, _ := r.run(r.spec("changing", 400)); st.State != job.Completed || st.Rows.Done != 400 {
		t.Errorf("%s %s: %+v", st.State, st.Reason, st.Rows)
	}
}

// expecting is a Background without online requests that expects one.
type expecting struct{ noOnline }

func (expecting) Expecting(int64) bool { return true }

// TestExpecting checks that the requests of a job are small while online requests are expected.
func TestExpecting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.background, r.gate = expecting{}, newGate(4)
	r.gate.now = func() time.Time { return time.Unix(0, 0) } // nothing is measured
	r.gate.took = briefTime / 2
	r.work()
	if st, _ := r.run(r.spec("expecting", 400)); st.State != job.Completed || st.Rows.Done != 400 {
		t.Errorf("%s %s: %+v", st.State, st.Reason, st.Rows)
	}
	if n := r.model.low.Load(); n < 200 {
		t.Errorf("400 rows are in %d requests, want at most 2 in each", n)
	}
}
