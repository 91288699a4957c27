package sequence

import (
	"testing"

	"tutti/core/tensor"
)

// TestViews verifies that a state is copied when the rest of its batch's memory is kept
// for nobody else, not before, and not for a sequence that has gone meanwhile.
func TestViews(t *testing.T) {
	t.Parallel()
	pool := tensor.NewPool()
	whole, err := tensor.New(pool, tensor.Int32, tensor.Of(4, 1024))
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{}
	for i := range 4 {
		view := whole.Retain()
		view.Off, view.Len = i*4096, 4096
		view.Shape.SetDim(0, 1)
		tensor.Slice[int32](&view)[7] = int32(i)
		sl := &slot{lane: l, number: i, states: []tensor.Tensor{view}}
		sl.seq = &sequence{at: sl, state: idle, arrived: uint64(i + 1)}
		l.slots, l.batch = append(l.slots, sl), append(l.batch, sl)
	}
	whole.Release()
	l.watch()
	look := func(want int) {
		t.Helper()
		if l.look(); len(l.moves) != want {
			t.Fatalf("%d states are copied, want %d", len(l.moves), want)
		}
		l.copyMoves(pool)
	}
	look(0)
	l.slots[0].states[0].Release()
	look(0) // three of four live
	l.slots[1].states[0].Release()
	l.slots[3].seq.state = running
	look(1)
	l.endMoves()
	if own := l.slots[2].states[0]; isView(&own) || tensor.Slice[int32](&own)[7] != 2 {
		t.Error("the copy is not the state")
	}
	l.slots[3].seq.state = idle
	look(1)
	l.slots[3].seq.arrived = 9 // another sequence came
	l.endMoves()
	if !isView(&l.slots[3].states[0]) {
		t.Error("a sequence got another's state")
	}
	if len(l.viewers) != 0 {
		t.Errorf("%d slots are still looked at", len(l.viewers))
	}
	for _, sl := range l.slots {
		sl.forget()
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
