package simdev

import (
	"fmt"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Copy enqueues a copy; see tensor.Stream.
func (s *Stream) Copy(dst *tensor.Buffer, dstOff int, src *tensor.Buffer, srcOff, n int) error {
	here := s.device.place
	if dst.Place() != here && src.Place() != here {
		return fmt.Errorf("%s: stream '%s' copies from %s to %s, expected its own device on one side", here, s.name, src.Place(), dst.Place())
	}
	if err := bounds(dst, dstOff, n); err != nil {
		return err
	}
	if err := bounds(src, srcOff, n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	what := "copy from " + src.Place().String() + " to " + dst.Place().String()
	id, err := s.enter(what, []*tensor.Buffer{src}, []*tensor.Buffer{dst})
	if err != nil {
		return err
	}
	to, from := s.device.machine.bytes(dst), s.device.machine.bytes(src)
	s.device.count(func(st *Stats) { st.traffic(src.Place(), dst.Place(), n) })
	s.push(operation{id: id, cost: s.device.cost(n), hold: []*tensor.Buffer{dst.Retain(), src.Retain()}, run: func() error {
		copy(to[dstOff:dstOff+n], from[srcOff:srcOff+n])
		return nil
	}})
	return nil
}

func (s *Stats) traffic(from, to tensor.Place, n int) {
	t := &s.Within
	switch {
	case from.Kind != tensor.Device:
		t = &s.Up
	case to.Kind != tensor.Device:
		t = &s.Down
	case from != to:
		t = &s.Peer
	}
	t.Count++
	t.Bytes += int64(n)
}

func bounds(b *tensor.Buffer, off, n int) error {
	if off < 0 || n < 0 || off > b.Len()-n {
		return fmt.Errorf("%s: %d bytes at %d are not in a buffer of %d", b.Place(), n, off, b.Len())
	}
	return nil
}

// Fill enqueues a fill with a pattern; see tensor.Stream.
func (s *Stream) Fill(dst *tensor.Buffer, off, n int, elem []byte) error {
	if err := bounds(dst, off, n); err != nil {
		return err
	}
	if len(elem) > 0 && n%len(elem) != 0 {
		return fmt.Errorf("%s: %d bytes cannot be filled with elements of %d", dst.Place(), n, len(elem))
	}
	if n == 0 {
		return nil
	}
	id, err := s.enter("fill", nil, []*tensor.Buffer{dst})
	if err != nil {
		return err
	}
	to, elem := s.device.machine.bytes(dst), slices.Clone(elem)
	s.push(operation{id: id, cost: s.device.cost(n), hold: []*tensor.Buffer{dst.Retain()}, run: func() error {
		part := to[off : off+n]
		if len(elem) == 0 {
			clear(part)
		}
		for len(elem) > 0 && len(part) > 0 {
			part = part[copy(part, elem):]
		}
		return nil
	}})
	return nil
}

// Memory gives a kernel access to device memory.
type Memory struct{ machine *Machine }

// Bytes returns the content of a device buffer, borrowed until the kernel returns.
func (m Memory) Bytes(b *tensor.Buffer) []byte { return m.machine.bytes(b) }

// Launch enqueues kernel f, which may read the buffers of reads and write those of writes. Unlike Copy, it holds no
// references: the caller must call UsedUntil and SetReady.
func (s *Stream) Launch(name string, reads, writes []*tensor.Buffer, f func(m Memory) error) error {
	if _, err := s.enter("kernel "+name, reads, writes); err != nil {
		return err
	}
	s.device.count(func(st *Stats) { st.Kernels++ })
	s.push(operation{cost: s.device.options.Latency, run: func() error { return f(Memory{s.device.machine}) }})
	return nil
}

// enter checks and records the accesses of an operation.
func (s *Stream) enter(what string, reads, writes []*tensor.Buffer) (a access, err error) {
	if err := s.open(); err != nil {
		return a, err
	}
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	a = s.tick(what)
	for i, b := range slices.Concat(reads, writes) {
		if err := m.touch(b, a, s.clock, i >= len(reads)); err != nil {
			return a, err
		}
	}
	return a, nil
}

// touch checks and records one access to a buffer; the caller holds the lock.
func (m *Machine) touch(b *tensor.Buffer, a access, now clock, write bool) error {
	if b.Place().Kind != tensor.Device || b.Len() == 0 {
		return nil
	}
	d, blk := m.find(b)
	switch {
	case d == nil:
		return fmt.Errorf("%s is no device of this machine", b.Place())
	case blk == nil:
		return fmt.Errorf("%s of %d bytes at %s: %s comes after the memory was freed", b.Place(), b.Len(), addr(b), &a)
	}
	if err := blk.order(b, &a, now, write); err != nil {
		return err
	}
	blk.note(a, write)
	return nil
}

// bytes returns the memory of a host or device buffer.
func (m *Machine) bytes(b *tensor.Buffer) []byte {
	if b.Place().Kind != tensor.Device {
		return b.Bytes()
	}
	for _, d := range m.devices {
		if d.place == b.Place() {
			return d.space.bytes(b)
		}
	}
	return nil
}

// cost returns the simulated duration of an operation on n bytes.
func (d *Device) cost(n int) time.Duration {
	cost := d.options.Latency
	if d.options.Bandwidth > 0 {
		cost += time.Duration(float64(n) / float64(d.options.Bandwidth) * float64(time.Second))
	}
	return cost
}
