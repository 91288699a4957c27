package sequence

import (
	"errors"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
)

// TestViews checks that a state is copied when it alone keeps its batch's memory alive, not before, and not when
// its sequence has ended in the meantime.
func TestViews(t *testing.T) {
	t.Parallel()
	pool := tensor.NewPool()
	whole, err := tensor.New(pool, tensor.Int32, tensor.Of(4, 1024))
	if err != nil {
		t.Fatal(err)
	}
	l := &instance{}
	for i := range 4 {
		view := whole.Retain()
		view.Off, view.Len = i*4096, 4096
		view.Shape.SetDim(0, 1)
		tensor.Slice[int32](&view)[7] = int32(i)
		sl := &slot{instance: l, number: i, states: []tensor.Tensor{view}}
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
	if len(l.withViews) != 0 {
		t.Errorf("%d slots are still looked at", len(l.withViews))
	}
	for _, sl := range l.slots {
		sl.forget()
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// placed is an instance at a device. It does nothing.
type placed struct {
	backends.Instance
	at tensor.Stream
}

func (p placed) Stream() tensor.Stream { return p.at }

// TestViewsAtDevice checks that a state at a device is copied there, in the order of the instance's stream: the
// simulated device reports memory that is used too early or freed too soon.
func TestViewsAtDevice(t *testing.T) {
	t.Parallel()
	m, err := simdev.New(2, simdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*simdev.Stream
	for _, d := range m.Devices() {
		st, err := d.Open("model")
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	st := streams[0]
	defer func() {
		if err := errors.Join(st.Close(), streams[1].Close(), m.Close()); err != nil {
			t.Error(err)
		}
	}()
	pool := tensor.NewPool()
	whole, err := tensor.New(st, tensor.Int32, tensor.Of(4, 1024))
	if err == nil {
		err = st.Fill(whole.Buf, 4096, 4096, []byte{1, 2, 3, 4})
	}
	if err != nil {
		t.Fatal(err)
	}
	whole.Buf.SetReady(st.Record())
	view := whole.Move()
	view.Off, view.Len = 4096, 4096
	view.Shape.SetDim(0, 1)
	l := &instance{inst: placed{at: streams[1]}}
	sl := &slot{instance: l, states: []tensor.Tensor{view}}
	sl.seq = &sequence{at: sl, state: idle, arrived: 1}
	move := func() {
		l.batch = append(l.batch[:0], sl)
		l.watch()
		l.look()
		l.copyMoves(pool)
		l.endMoves()
	}
	if move(); !isView(&sl.states[0]) {
		t.Error("another device's stream copied a state")
	}
	l.inst = placed{at: st}
	if move(); isView(&sl.states[0]) {
		t.Fatal("the state was not copied")
	}
	host, err := duplicateToHost(st, pool, &sl.states[0])
	if err != nil || tensor.Slice[int32](&host)[1023] != 0x04030201 {
		t.Errorf("the copy is not the state, %v", err)
	}
	host.Release()
	sl.forget()
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

func duplicateToHost(st tensor.Stream, pool tensor.Allocator, x *tensor.Tensor) (tensor.Tensor, error) {
	host, err := tensor.New(pool, x.DType, x.Shape)
	if err != nil {
		return host, err
	}
	return host, errors.Join(st.Copy(host.Buf, 0, x.Buf, x.Off, x.Len), st.Record().Wait())
}
