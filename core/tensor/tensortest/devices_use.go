package tensortest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
)

// checkShared makes copies of one buffer with CopyFor, from several goroutines: they share one.
func checkShared(k *kit) {
	k.Helper()
	s, down := k.stream(0), k.stream(0)
	x := k.up(s, pattern(256, 2))
	k.wait(down, x)
	made := 0
	var all sync.WaitGroup
	for range 8 {
		mine := x.Retain()
		all.Go(func() {
			defer mine.Release()
			b, err := mine.CopyFor(64, 128, tensor.Place{}, func() (*tensor.Buffer, error) {
				made++ // CopyFor calls one at a time
				to, err := k.host.Alloc(128)
				if err != nil {
					return nil, err
				}
				if err := down.Copy(to, 0, mine, 64, 128); err != nil {
					to.Release()
					return nil, err
				}
				to.SetReady(down.Record())
				return to, nil
			})
			if err != nil {
				k.Error(err)
				return
			}
			defer b.Release()
			if err := b.Ready().Wait(); err != nil || !bytes.Equal(b.Bytes(), pattern(256, 2)[64:192]) {
				k.Errorf("a shared copy: %v, or other content", err)
			}
		})
	}
	all.Wait()
	if made != 1 {
		k.Errorf("%d copies were made, want 1", made)
	}
	x.Release()
}

// checkClosed checks that a closed stream refuses work.
func checkClosed(k *kit) {
	k.Helper()
	s, err := k.devices[0].NewStream("closed")
	k.must(err)
	x := k.up(s, pattern(64, 0))
	k.must(s.Close())
	k.must(s.Close())
	from := k.bytes(pattern(64, 1))
	if s.Copy(x, 0, from, 0, 64) == nil || s.Fill(x, 0, 64, nil) == nil {
		k.Error("a closed stream takes work")
	}
	from.Release()
	x.Release() // its stream is gone
	unused, err := k.devices[0].NewStream("unused")
	k.must(err)
	k.must(unused.Close())
	k.expect(k.stream(0), k.heldUp(pattern(64, 8)), pattern(64, 8))
}

// heldUp returns a buffer of the device with the content, which is released when the check ends.
func (k *kit) heldUp(content []byte) *tensor.Buffer {
	k.Helper()
	s := k.stream(0)
	b := k.up(s, content)
	k.must(b.Ready().Wait())
	k.Cleanup(b.Release)
	return b
}

// checkRefusedWork checks bad arguments: they fail, and the stream goes on.
func checkRefusedWork(k *kit) {
	k.Helper()
	s := k.stream(0)
	b, from := k.up(s, pattern(64, 6)), k.bytes(pattern(64, 7))
	for name, err := range map[string]error{
		"beyond the end":     s.Copy(b, 32, from, 0, 33),
		"beyond the source":  s.Copy(b, 0, from, 60, 8),
		"negative offset":    s.Copy(b, -1, from, 0, 8),
		"negative size":      s.Copy(b, 0, from, 0, -8),
		"overflow":           s.Copy(b, 1, from, 0, math.MaxInt),
		"no side":            s.Copy(from, 0, from, 0, 8),
		"part of an element": s.Fill(b, 0, 6, []byte{1, 2, 3, 4}),
		"fill beyond":        s.Fill(b, 60, 8, nil),
		"negative fill":      s.Fill(b, -4, 8, nil),
		"host memory":        s.Fill(from, 0, 8, nil),
	} {
		if err == nil {
			k.Errorf("%s: no error", name)
		}
	}
	if !panics(func() { b.Bytes() }) {
		k.Error("the host can look at device memory")
	}
	k.expect(s, b, pattern(64, 6))
	b.Release()
	from.Release()
}

// elsewhere is a stream of another implementation.
type elsewhere struct{ tensor.Stream }

func (elsewhere) Place() tensor.Place { return tensor.Place{Kind: tensor.Device, ID: 77} }

// checkForeign checks that streams of other machines cannot wait for an event.
func checkForeign(k *kit) {
	k.Helper()
	s := k.stream(0)
	b := k.up(s, pattern(64, 6))
	e := s.Record()
	if e.WaitOn(elsewhere{}) == nil {
		k.Error("a stream of another implementation can wait for an event")
	}
	k.expect(s, b, pattern(64, 6))
	b.Release()
}

// checkExhausted takes all memory, and checks that the error says how much was asked for and that memory which is released is
// available again, also while its last use has not run.
func checkExhausted(k *kit) {
	k.Helper()
	const memory, part = 8 << 20, 1 << 20
	d := k.machine.Open(k, 1, memory)[0]
	s, err := d.NewStream("s")
	k.must(err)
	k.Cleanup(func() { k.must(s.Close()) })
	for range 3 {
		var held []*tensor.Buffer
		for {
			b, err := s.Alloc(part)
			if err != nil {
				if !strings.Contains(err.Error(), strconv.Itoa(part)) {
					k.Errorf("the error does not say how much was asked for: %v", err)
				}
				break
			}
			held = append(held, b)
			k.must(s.Fill(b, 0, part, []byte{1}))
			if len(held) > memory/part {
				k.Fatalf("%d bytes were allocated, of %d", len(held)*part, memory)
			}
		}
		if len(held) < memory/part/2 {
			k.Errorf("only %d of %d bytes could be allocated", len(held)*part, memory)
		}
		if b, err := d.Alloc(part); err == nil {
			k.Error("a device without memory gives memory")
			b.Release()
		}
		k.expect(s, held[0], bytes.Repeat([]byte{1}, part))
		for _, b := range held {
			b.Release()
		}
	}
	b, err := d.Alloc(part)
	k.must(err)
	b.Release()
}

// checkGoroutines uses one device from many goroutines, each with its own stream.
func checkGoroutines(k *kit) {
	k.Helper()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			if err := k.roundTrips(g); err != nil {
				k.Error(err)
			}
		})
	}
	all.Wait()
}

func (k *kit) roundTrips(g int) error {
	s, err := k.devices[0].NewStream(strconv.Itoa(g))
	if err != nil {
		return err
	}
	for i := range 50 {
		if err := k.roundTrip(s, pattern(512, g*50+i)); err != nil {
			return fmt.Errorf("goroutine %d, round %d: %w", g, i, err)
		}
	}
	return s.Close()
}

func (k *kit) roundTrip(s tensor.Stream, content []byte) error {
	from, err := k.host.Alloc(len(content))
	if err != nil {
		return err
	}
	defer from.Release()
	to, err := k.host.Alloc(len(content))
	if err != nil {
		return err
	}
	defer to.Release()
	copy(from.Bytes(), content)
	x, err := s.Alloc(len(content))
	if err != nil {
		return err
	}
	defer x.Release()
	if err := s.Copy(x, 0, from, 0, len(content)); err != nil {
		return err
	}
	if err := s.Copy(to, 0, x, 0, len(content)); err != nil {
		return err
	}
	if err := s.Record().Wait(); err != nil {
		return err
	}
	if !bytes.Equal(to.Bytes(), content) {
		return errors.New("other content")
	}
	return nil
}

// checkPinned copies through pinned memory.
func checkPinned(k *kit) {
	k.Helper()
	s := k.stream(0)
	pinned := k.machine.Pinned(k, k.devices[0])
	for i := range 10 {
		from, to := k.alloc(pinned, 5000), k.alloc(pinned, 5000)
		copy(from.Bytes(), pattern(5000, i))
		x := k.alloc(s, 5000)
		k.must(s.Copy(x, 0, from, 0, 5000))
		from.Release()
		k.must(s.Copy(to, 0, x, 0, 5000))
		x.Release()
		k.must(s.Record().Wait())
		if !bytes.Equal(to.Bytes(), pattern(5000, i)) {
			k.Fatal("other content came back")
		}
		to.Release()
	}
}
